"""A clock that is set back while a process works: ``time.time`` jumps, ``time.monotonic`` does not."""

from __future__ import annotations

import time

import pytest


class SetClock:
    """``time.time`` of this process, moved by as many seconds as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real, self.moved = time.time, 0.0
        monkeypatch.setattr(time, "time", lambda: self._real() + self.moved)
