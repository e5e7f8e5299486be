"""The watch during training: every state with every health, time lines over gRPC and HTTP, and its thread."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
from standin.bench import NOON, bench
from standin.servers import announcing
from standin.timeline import EXPIRED_MESSAGE, Announcement, Outage, Script, life
from turned_clock import TurnedClock

from podline.base.errors import TpuGoneError, TpuUnhealthyError
from podline.settings.tpu_settings import Limits, MachineSettings
from podline.tpu.node import Health, State
from podline.tpu.watch import UNHEALTHY, Course, Watch, WatchDecision, judge, watching

LIMITS = Limits()
TAKEN = {State.ABSENT, State.PREEMPTED, State.TERMINATED, State.DELETING, State.STOPPING, State.STOPPED}
UNCLEAR = {State.READY, State.UNKNOWN, State.STATE_UNSPECIFIED}
ELSEWHERE = set(State) - TAKEN - UNCLEAR


@pytest.mark.parametrize(("state", "health"), list(itertools.product([None, *State], Health)))
def test_a_training_that_makes_progress(state: State | None, health: Health) -> None:
    for silent_for, announced in itertools.product([0.0, LIMITS.stall - 1], ["", "the machine is being preempted"]):
        verdict = judge(state, health, LIMITS, silent_for=silent_for, end_announced=announced)
        if state in TAKEN | ELSEWHERE:
            expected = Course.END_NOW
        elif announced or health is Health.UNHEALTHY_MAINTENANCE:
            expected = Course.SAVE_AND_END
        else:
            expected = Course.GO_ON
        assert verdict.course is expected, announced
        assert bool(verdict.why) == (expected is not Course.GO_ON)
        if expected is not Course.GO_ON:
            gone = state in TAKEN or (state not in ELSEWHERE and bool(announced))
            assert verdict.error is (TpuGoneError if gone else TpuUnhealthyError), announced


@pytest.mark.parametrize("health", Health)
def test_one_that_makes_none_ends_on_an_unhealthy_node_and_is_the_supervisors_on_others(health: Health) -> None:
    verdict = judge(State.READY, health, LIMITS, silent_for=LIMITS.stall)
    assert verdict.course is (Course.END_NOW if health in UNHEALTHY else Course.GO_ON)


def course_of(
    tmp_path: Path, script: Script, announcements: list[Announcement] | None = None
) -> tuple[float, WatchDecision]:
    """When a training that makes progress all the time is told to end, and how; looked at every second."""
    clock, lines = TurnedClock(NOON), []
    with announcing(clock, announcements or []) as address:
        machine = MachineSettings(metadata_address=address) if announcements else None
        with bench(tmp_path, script, clock, machine=machine) as it:
            watch = Watch(it.settings, it.api, clock, lines.append)
            for _second in range(3600):
                verdict = watch.look(silent_for=0.0)
                if verdict.course is not Course.GO_ON:
                    return it.cloud.now, verdict
                clock.turn(1)
    return 3600, WatchDecision(Course.GO_ON, "; ".join(lines))


def test_preempted_with_thirty_seconds_notice(tmp_path: Path) -> None:
    notice = Announcement(71, "preempted", "TRUE")
    script = Script(life=life("READY/HEALTHY 101, PREEMPTED"))
    when, verdict = course_of(tmp_path, script, [notice])
    assert (when, verdict) == (75, WatchDecision(Course.SAVE_AND_END, "the machine is being preempted", TpuGoneError))
    assert course_of(tmp_path, script)[0] == 120, "without a notice, at the next of its polls"


@pytest.mark.parametrize("outage", [Outage(100, 700), Outage(100, 1e9, 16, EXPIRED_MESSAGE)])
def test_an_api_that_does_not_answer_ends_nothing_and_is_said_once(tmp_path: Path, outage: Outage) -> None:
    _when, verdict = course_of(tmp_path, Script(outages=(outage,)))
    assert verdict.course is Course.GO_ON
    assert verdict.why.count("the TPU's health is unknown (") == 1
    assert verdict.why.count("known again") == (outage.end < 3600)


def test_the_thread_acts_once_and_ends_with_the_body(tmp_path: Path) -> None:
    acted, verdicts = threading.Event(), []
    with bench(tmp_path, Script(life=life("READY/HEALTHY 60, PREEMPTED"))) as it:
        watch = Watch(it.settings, it.api, it.clock, it.lines.append)

        def act(verdict: WatchDecision) -> None:
            verdicts.append(verdict)
            acted.set()

        with watching(watch, lambda: 0.0, act, every=0.01):
            assert not acted.wait(0.1)
            it.clock.turn(60)
            assert acted.wait(240)
            it.clock.turn(60)
        assert [verdict.why for verdict in verdicts] == ["the node is PREEMPTED"]
    assert not any(thread.name == "tpu-watch" for thread in threading.enumerate())
