"""Gate, watch and retries together over random time lines: a training ends, or fails for a reason, and is never alone.

The training is a function here: it makes progress while the clock turns, hangs, is killed, or raises what a TPU raises.
What it does at its n-th start is drawn as the node's life is.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from standin.bench import NOON, Bench, bench
from standin.cloud import NODE, RefusedError
from standin.timeline import Script, life
from test_tpu_gate_properties import LIMITS, LONGEST, SCRIPTS, LoopError
from turned_clock import TurnedClock

from podline.errors import (
    ArtifactError,
    ChildKilledError,
    HangError,
    PodlineError,
    UnexplainedError,
)
from podline.stages.budgets import Budgets
from podline.tpu.gate import admitted
from podline.tpu.tpu_log import Event, TpuLog
from podline.tpu.watch import Course, Watch

STEPS = 60
SECONDS_A_STEP = 10.0
HANG = 300.0
# A look, what an unhealthy node is given, and a look again.
LONGEST_ON_A_BAD_NODE = LIMITS.unhealthy + 2 * (LIMITS.poll + SECONDS_A_STEP)
# As many as all budgets together allow, each with the longest way through the gate and the longest training.
ALL = 10 * LONGEST


@dataclass(frozen=True)
class Act:
    """What a start of the training does when it gets to a step that no start before it has reached."""

    step: int
    what: str


ACTS = st.lists(
    st.builds(Act, st.integers(0, STEPS - 1), st.sampled_from(["hang", "die", "bug of XLA", "bad label"])), max_size=4
)


class _Bounded(TurnedClock):
    def turn(self, seconds: float) -> None:
        super().turn(seconds)
        if self.now() > NOON + ALL:
            raise LoopError


@dataclass
class Training:
    """What one run's starts have in common: the steps that are saved, and who else is at work."""

    acts: list[Act]
    at_work: list[str]
    name: str = "one"
    alone: bool = True
    saved: int = 0
    starts: int = 0
    crowds: list[list[str]] = field(default_factory=list)

    def run(self, it: Bench, tpu_log: TpuLog) -> None:
        """One start, watched; it holds what it saves, and loses what it does not."""
        self.starts += 1
        self.at_work.append(self.name)
        try:
            self._steps(it, Watch(it.settings, it.api, it.clock, tpu_log.say))
        finally:
            self.crowds.append([*self.at_work])
            self.at_work.remove(self.name)

    def _steps(self, it: Bench, watch: Watch) -> None:
        step, silent, acts = self.saved, 0.0, list(self.acts)
        well = it.clock.now()
        while step < STEPS:
            self.crowds.append([*self.at_work])
            it.clock.turn(SECONDS_A_STEP)
            act = next((act for act in acts if act.step == step), None)
            if act is not None and act.what == "hang":
                silent += SECONDS_A_STEP
            else:
                step, silent = step + 1, 0.0
            verdict = watch.look(silent)
            if verdict.course is not Course.GO_ON:
                self.saved = step if verdict.course is Course.SAVE_AND_END else self.saved
                raise verdict.error(f"{verdict.why}: {verdict.course}")
            well = it.clock.now() if _may_be_used(it) else well
            # Whoever shares the clock turns it as well.
            assert it.clock.now() - well <= LONGEST_ON_A_BAD_NODE or not self.alone
            if act is not None and (act.what != "hang" or silent >= HANG):
                self.acts.remove(act)
                raise _failure(act)
            if step % 10 == 0:
                self.saved = step
        self.saved = step


def _may_be_used(it: Bench) -> bool:
    """Whether there is no reason to leave the node, or nobody who could know of one."""
    if any(outage.start <= it.cloud.now < outage.end for outage in it.cloud.script.outages):
        return True
    try:
        node = it.cloud.get_node(NODE)
    except RefusedError:
        return False
    sure = node.state.name in {"READY", "UNKNOWN", "STATE_UNSPECIFIED"}
    return sure and node.health.name in {"HEALTHY", "HEALTH_UNSPECIFIED"}


def _failure(act: Act) -> PodlineError:
    kinds = {"hang": HangError, "die": ChildKilledError, "bug of XLA": UnexplainedError, "bad label": ArtifactError}
    return kinds[act.what](f"{act.what} at step {act.step}")


def night(it: Bench, training: Training, sleep: Callable[[float], None]) -> PodlineError | None:
    """The loop that the flow's task is: attempt after attempt, as the budgets allow; the last failure, if any."""
    budgets = Budgets()
    # Nothing else is kept from one attempt to the next.
    tpu_log = TpuLog()
    tpu_log.tell(it.clock.now(), Event.BEGIN, "train")
    while True:
        try:
            with admitted(it.settings, it.api, it.clock, tpu_log):
                node = it.cloud.get_node(NODE)
                # Whoever shares the clock may have turned it since the gate looked.
                assert (node.state.name, node.health.name) == ("READY", "HEALTHY") or not training.alone
                training.run(it, tpu_log)
        except PodlineError as error:
            tried = tpu_log.tried()
            assert tried.restarts <= LIMITS.restart.attempts
            assert tried.recreations <= LIMITS.recreate.attempts
            assert tried.replacements <= LIMITS.preemptions
            retry = budgets.after(error)
            if retry is None:
                return error
            sleep(retry.delay)
        else:
            return None


def ends(script: Script, acts: list[Act]) -> None:
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder), script, _Bounded(NOON), limits=LIMITS) as it:
        training = Training(list(acts), [])
        failure = night(it, training, it.clock.turn)
        assert training.starts <= 10
        if failure is None:
            assert training.saved == STEPS
        else:
            assert str(failure)
            assert "\n" not in str(failure)


@settings(max_examples=30, deadline=None)
@given(script=SCRIPTS, acts=ACTS)
@example(Script(life=life("READY/HEALTHY 110, PREEMPTED")), [])
@example(Script(life=life("READY/HEALTHY 110, READY/TIMEOUT")), [])
@example(Script(life=life("READY/HEALTHY 110, REPAIRING 900, READY/HEALTHY")), [Act(3, "hang")])
def test_it_ends_in_a_training_or_in_a_failure(script: Script, acts: list[Act]) -> None:
    ends(script, acts)


def never_two_users(script: Script, acts: list[Act]) -> None:
    """Two runs on one machine, in threads that share the clock: what one waits, the other works."""
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder), script, _Bounded(NOON), limits=LIMITS) as it:
        at_work: list[str] = []
        trainings = [Training(list(acts), at_work, "one", alone=False), Training([], at_work, "two", alone=False)]
        together = threading.Barrier(2)

        def one(training: Training) -> PodlineError | None:
            together.wait()
            return night(it, training, it.clock.turn)

        with ThreadPoolExecutor(2) as threads:
            failures = list(threads.map(one, trainings))
    for training, failure in zip(trainings, failures, strict=True):
        assert failure is not None or training.saved == STEPS
        assert all(crowd == [training.name] for crowd in training.crowds)


@settings(max_examples=10, deadline=None)
@given(script=SCRIPTS, acts=ACTS)
def test_two_runs_at_once_never_both_train(script: Script, acts: list[Act]) -> None:
    never_two_users(script, acts)


def test_permanent_errors_are_not_tried_again(tmp_path: Path) -> None:
    with bench(tmp_path) as it:
        training = Training([Act(3, "bad label")], [])
        assert isinstance(night(it, training, it.clock.turn), ArtifactError)
    assert (training.starts, it.cloud.calls) == (1, [])
