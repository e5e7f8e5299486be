"""When a child has said too little or worked too long; by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from podline.base import errors
from podline.base.progress import Event
from podline.settings.machine import Settings
from podline.stages.supervision import stacks, supervisor
from podline.stages.supervision.supervisor import Ending

PROGRESS = {"event": "progress", "stage": "train"}
WAITING = {"event": "waiting", "stage": "train"}
QUIET = None


def pace(seconds: float | None) -> Event:
    return {"event": "pace", "stage": "train", "seconds": seconds}


class Child(supervisor._Child):
    """A child whose events come at given seconds."""

    def __init__(self, script: list[tuple[float, Event | None]], monkeypatch: pytest.MonkeyPatch) -> None:
        self._stage, self._keeps, self._log = "train", "checkpoints are kept", "the log"
        self._script, self.now = script, 0.0
        monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: self.now))

    def _events(self) -> Iterator[Event | None]:
        for at, event in self._script:
            self.now = max(self.now, at)
            yield event

    def _stacks(self) -> str:
        return ""


def watched(patch: pytest.MonkeyPatch, *script: tuple[float, Event | None], slow: float = 0.0, **limits: Any) -> float:
    """Listen to a child, for ``slow`` seconds to each event; return the time at the end."""
    child = Child([*script], patch)
    for event in child.watched(Settings(**limits), Ending()):
        child.now += slow
        assert event["event"] != "pace", "that is between child and supervisor"
    return child.now


@pytest.mark.parametrize(
    ("seconds", "silent_for", "limits", "setting"),
    [
        (None, 901, {}, "silence"),
        (0.01, 121, {}, "hang_floor"),
        (10, 201, {}, "hang_factor"),
        (10, 51, {"silence": 50}, "silence"),
        (0.01, 11, {"hang_floor": 10}, "hang_floor"),
        (1, 31, {"hang_floor": 10, "hang_factor": 30}, "hang_factor"),
    ],
)
def test_a_silence_is_a_hang_by_the_setting_that_is_named(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None, silent_for: float, limits: dict[str, Any], setting: str
) -> None:
    before = (1000, PROGRESS), (1000, pace(seconds))
    assert watched(monkeypatch, *before, (1000 + silent_for - 2, QUIET), **limits) > 1000
    with pytest.raises(errors.HangError, match=rf"made no progress for {silent_for - 1} s .*the setting {setting}"):
        watched(monkeypatch, *before, (1000 + silent_for, QUIET), **limits)


def test_a_start_has_a_limit_of_its_own_and_signs_of_life_are_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    alive, begun = {"event": "alive", "stage": "train"}, [(1790, QUIET), (1795, WAITING), (3590, QUIET)]
    assert watched(monkeypatch, *begun, (3591, alive), (3640, QUIET), silence=50) == 3640
    with pytest.raises(errors.HangError, match=r"for 1800 s .*; checkpoints are kept \(the limit for a start"):
        watched(monkeypatch, *begun, (3596, QUIET), silence=50)
    with pytest.raises(errors.HangError, match=r"for 50 s .*the setting silence"):
        watched(monkeypatch, *begun, (3591, alive), (3642, QUIET), silence=50)
    with pytest.raises(errors.HangError, match="hang_floor"):  # a sign of life leaves the pace as it is
        watched(monkeypatch, (0, pace(0.01)), (1, alive), (122, QUIET))


def test_what_a_listener_takes_is_no_silence_of_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, (0, PROGRESS), (0, QUIET), slow=2000.0) == 2000


def test_progress_is_no_silence_but_the_time_out_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = [(at, event) for at in range(0, 2000, 100) for event in (PROGRESS, QUIET)]
    assert watched(monkeypatch, *talk) == 1900
    with pytest.raises(errors.StageTimeoutError, match=r"longer than 1500 s .*the setting stage_timeout"):
        watched(monkeypatch, *talk, stage_timeout=1500)


def test_waiting_for_another_process_counts_towards_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [(at, event) for at in range(0, 7200, 10) for event in (WAITING, QUIET)]
    work = [(at, event) for at in range(7200, 8000, 100) for event in (PROGRESS, QUIET)]
    assert watched(monkeypatch, *waits, *work, stage_timeout=1500, silence=300) == 7900
    with pytest.raises(errors.StageTimeoutError):
        watched(monkeypatch, *waits, *work, stage_timeout=600, silence=300)


DUMP = """something that a library said
Thread 0x00007f0000000001 (most recent call first):
  File "/opt/lib/python3.11/site-packages/numpy/lib/io.py", line 7 in read
  File "{ours}/data/reader.py", line 71 in gather

Thread 0x00007f0000000002 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 320 in wait

Thread 0x00007f0000000003 (most recent call first):
  File "/opt/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f0000000004 (most recent call first):
  File "{ours}/training/steps.py", line 66 in advance
"""


def test_each_thread_is_where_it_is_and_where_it_came_from() -> None:
    assert stacks.where(DUMP.format(ours=stacks._OURS)).splitlines() == [
        "main thread: podline/training/steps.py:66 in advance",
        "another thread: numpy/lib/io.py:7 in read, called from podline/data/reader.py:71 in gather",
        "another thread: /opt/lib/python3.11/threading.py:320 in wait",
    ]
    assert stacks.where("Killed") == "its threads wrote no stacks"
