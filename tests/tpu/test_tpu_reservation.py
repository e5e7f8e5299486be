"""Turns at a TPU: one at a time among processes, a pause in between, and no turn that outlives its process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import turned_clock
from turned_clock import TurnedClock

from podline.errors import TpuSetupError
from podline.tpu import reservation
from podline.tpu.reservation import Reservation

TAKES = """
import sys, time
from pathlib import Path
sys.path.append(sys.argv[2])
from turned_clock import TurnedClock
from podline.tpu.reservation import Reservation
turn = Reservation(Path(sys.argv[1]), 60.0, TurnedClock(1000.0))
print(turn.take(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "podline-tpu-night.json"


def test_one_at_a_time_and_then_a_pause(file: Path) -> None:
    clock = TurnedClock(1000.0)
    first, second = Reservation(file, 60.0, clock), Reservation(file, 60.0, clock)
    assert first.take()
    assert first.take()
    assert first.cooling == 0
    assert not second.take()
    clock.turn(500)
    first.give_back()
    clock.turn(20)
    assert second.take()
    assert second.cooling == 40
    clock.turn(40)
    assert second.cooling == 0
    assert not first.take()
    assert reservation.look(file, 60.0, clock).holder == os.getpid()


def test_a_killed_holder_gives_its_turn_back_and_the_pause_begins_when_that_is_noticed(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKES, str(file), str(Path(turned_clock.__file__).parent)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        clock = TurnedClock(5000.0)
        turn = Reservation(file, 60.0, clock)
        assert not turn.take()
        assert reservation.look(file, 60.0, clock).holder == process.pid
        process.kill()
        process.wait()
        assert turn.take()
        assert turn.cooling == 60


def test_a_clock_that_was_set_back_lengthens_no_pause(file: Path) -> None:
    ahead = Reservation(file, 60.0, TurnedClock(1_000_000.0))
    assert ahead.take()
    ahead.give_back()
    turn = Reservation(file, 60.0, TurnedClock(1000.0))
    assert turn.take()
    assert turn.cooling == 60


def test_a_file_that_was_cut_short_is_that_of_a_killed_holder(file: Path) -> None:
    file.write_text('{"pid": 1')
    turn = Reservation(file, 60.0, TurnedClock(1000.0))
    assert turn.take()
    assert turn.cooling == 60


def test_a_look_takes_nothing_and_makes_no_file(file: Path) -> None:
    clock = TurnedClock(1000.0)
    assert str(reservation.look(file, 60.0, clock)) == "free"
    assert not file.exists()
    turn = Reservation(file, 60.0, clock)
    assert turn.take()
    assert "process" in str(reservation.look(file, 60.0, clock))
    turn.give_back()
    clock.turn(15)
    assert str(reservation.look(file, 60.0, clock)) == "free, cooling down for 45 s"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TpuSetupError, match="is not there; make it"):
        Reservation(tmp_path / "nowhere" / "file.json", 60.0, TurnedClock()).take()
