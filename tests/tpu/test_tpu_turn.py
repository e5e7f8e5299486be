"""Turns at a TPU: one at a time among processes, a pause in between, and no turn that outlives its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import turned_clock
from set_clock import SetClock
from turned_clock import TurnedClock

from podline.base.errors import TpuSetupError
from podline.tpu import turn
from podline.tpu.clock import SystemClock
from podline.tpu.turn import Turn

TAKES = """
import sys, time
from pathlib import Path
sys.path.append(sys.argv[2])
from turned_clock import TurnedClock
from podline.tpu.turn import Turn
turn = Turn(Path(sys.argv[1]), 60.0, TurnedClock(1000.0))
print(turn.take(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "podline-tpu-night"


def test_one_at_a_time_and_then_a_pause(file: Path) -> None:
    clock = TurnedClock(1000.0)
    first, second = Turn(file, 60.0, clock), Turn(file, 60.0, clock)
    assert str(turn.look(file, 60.0, clock)) == "free"
    assert not file.exists(), "a look makes no file"
    assert first.take()
    assert first.take()
    assert first.cooling == 0
    assert not second.take()
    assert turn.look(file, 60.0, clock).holder == str(os.getpid())
    clock.turn(500)
    first.give_back()
    clock.turn(20)
    assert str(turn.look(file, 60.0, clock)) == "free, cooling down for 40 s"
    assert second.take()
    assert second.cooling == 40
    clock.turn(40)
    assert second.cooling == 0
    assert not first.take()


def test_a_killed_holder_gives_its_turn_back_and_the_pause_begins_when_that_is_noticed(file: Path) -> None:
    command = [sys.executable, "-c", TAKES, str(file), str(Path(turned_clock.__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        clock = TurnedClock(5000.0)
        mine = Turn(file, 60.0, clock)
        assert not mine.take()
        assert turn.look(file, 60.0, clock).holder == str(process.pid)
        process.kill()
        process.wait()
        assert mine.take()
        assert mine.cooling == 60


@pytest.mark.parametrize("content", ["1", "1 1000000.0", "nonsense and more", ""])
def test_whatever_the_file_says_no_pause_is_longer_than_the_cool_down(file: Path, content: str) -> None:
    file.write_text(content)
    mine = Turn(file, 60.0, TurnedClock(1000.0))
    assert mine.take()
    assert mine.cooling == (60 if content else 0)


def test_a_file_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    file, said = tmp_path / "file", r"cannot be used: .*; set tpu\.folder"
    (tmp_path / "another").touch()
    file.symlink_to(tmp_path / "another")
    with pytest.raises(TpuSetupError, match=said):
        Turn(file, 60.0, TurnedClock()).take()
    with pytest.raises(TpuSetupError, match=said):
        turn.look(file, 60.0, TurnedClock())


@pytest.mark.parametrize("moved", [-3600.0, 3600.0])
def test_a_clock_that_is_set_neither_ends_nor_prolongs_a_wait(monkeypatch: pytest.MonkeyPatch, moved: float) -> None:
    machine = SetClock(monkeypatch)
    clock = SystemClock()
    before = clock.now()
    assert abs(before - time.time()) < 1
    machine.moved = moved
    assert 0 <= clock.now() - before < 60
    assert abs(SystemClock().now() - time.time()) < 1
