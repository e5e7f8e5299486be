from __future__ import annotations

import time

import pytest
from set_clock import SetClock

from podline.tpu.clock import SystemClock


@pytest.mark.parametrize("moved", [-3600.0, 3600.0])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_wait(monkeypatch: pytest.MonkeyPatch, moved: float) -> None:
    machine = SetClock(monkeypatch)
    clock = SystemClock()
    before = clock.now()
    assert abs(before - time.time()) < 1
    machine.moved = moved
    assert 0 <= clock.now() - before < 60
    assert abs(SystemClock().now() - time.time()) < 1
