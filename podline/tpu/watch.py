"""Watches a TPU during a training: the node's health, Google's notices to the machine, and the training's progress.

The training does not need the API, so it continues if the API is unavailable or credentials expire. The supervisor
detects a training without progress on a HEALTHY TPU; then the gate restarts the node before its next use.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from podline.base.errors import PodlineError, TpuGoneError, TpuUnhealthyError
from podline.base.figures import duration
from podline.base.progress import beside
from podline.settings.tpu_settings import Limits, TpuSettings
from podline.tpu import notices
from podline.tpu.clock import Clock
from podline.tpu.node import GONE, Health, State

if TYPE_CHECKING:
    from podline.tpu.client import CloudTpu


class Course(StrEnum):
    """The next step of a training: go on, save and end, or end now."""

    GO_ON = "go on"
    SAVE_AND_END = "checkpoint and end"
    END_NOW = "end now"


@dataclass(frozen=True)
class WatchDecision:
    """The next step of a training, the reason, and the error class to raise if the training ends."""

    course: Course
    why: str = ""
    error: type[PodlineError] = TpuUnhealthyError


GO_ON = WatchDecision(Course.GO_ON)

_TAKEN = GONE | {State.ABSENT, State.DELETING, State.STOPPING, State.STOPPED}
_CERTAIN = frozenset({State.READY, State.UNKNOWN, State.STATE_UNSPECIFIED})
UNHEALTHY = frozenset({Health.TIMEOUT, Health.UNHEALTHY_TENSORFLOW, Health.UNHEALTHY_MAINTENANCE})
"""Kinds of health that indicate a problem; HEALTH_UNSPECIFIED gives no information."""


def judge(
    state: State | None, health: Health, limits: Limits, *, silent_for: float, end_announced: str = ""
) -> WatchDecision:
    """Return the next step of a training; the first match wins, most serious first.

    Args:
        state: the node's state; None while the API does not answer.
        health: the node's health.
        limits: limits with ``stall``.
        silent_for: seconds since the training's last progress.
        end_announced: the announced reason for the end of the machine, or empty.

    ===================================================== ======================================
    observation                                           next step
    ===================================================== ======================================
    taken away: preempted, deleted, stopped               end now
    in transition: created, started, repaired, hidden     end now
    its end is announced                                  checkpoint and end
    unhealthy, and no progress for ``limits.stall``       end now
    under maintenance                                     checkpoint and end
    all else, and an API that does not answer             go on
    ===================================================== ======================================

    Progress is better evidence than Google's monitor, so a training with progress continues on an unhealthy node.
    """
    if state in _TAKEN:
        return WatchDecision(Course.END_NOW, f"the node is {state}", TpuGoneError)
    if state is not None and state not in _CERTAIN:
        return WatchDecision(Course.END_NOW, f"the node is {state}")
    if end_announced:
        return WatchDecision(Course.SAVE_AND_END, end_announced, TpuGoneError)
    if health not in UNHEALTHY:
        return GO_ON
    if silent_for >= limits.stall:
        silence = duration(silent_for)
        return WatchDecision(Course.END_NOW, f"the node is {health}, and no progress for {silence}")
    if health is Health.UNHEALTHY_MAINTENANCE:
        return WatchDecision(Course.SAVE_AND_END, "the node is under maintenance")
    return GO_ON


class Watch:
    """Checks a node and its machine, each at its own interval.

    Args:
        settings: the node, its machine and the intervals.
        api: the Cloud TPU API.
        clock: the clock for the intervals; the watch never sleeps by it.
        log: gets a line when the API stops answering, and when it answers again.
    """

    def __init__(self, settings: TpuSettings, api: CloudTpu, clock: Clock, log: Callable[[str], None]) -> None:
        self._settings, self._api, self._clock, self._log = settings, api, clock, log
        self._state: State | None = None
        self._health, self._end_announced = Health.HEALTH_UNSPECIFIED, ""
        self._next_node = self._next_notice = clock.now()
        self._answers = True

    def look(self, silent_for: float) -> WatchDecision:
        """Run the checks that are due; return the next step of the training.

        Args:
            silent_for: seconds since the training last showed progress.
        """
        now, limits, machine = self._clock.now(), self._settings.limits, self._settings.machine
        if machine is not None and now >= self._next_notice:
            self._next_notice = now + limits.notice_poll
            self._end_announced = notices.end_announced(machine, now, limits.maintenance_lead)
        if now >= self._next_node:
            self._next_node = now + limits.poll
            self._look_at_node()
        return judge(self._state, self._health, limits, silent_for=silent_for, end_announced=self._end_announced)

    def _look_at_node(self) -> None:
        try:
            node = self._api.node(self._settings.node)
        except PodlineError as error:
            self._say(f"the TPU's health is unknown ({error}); the training continues", answers=False)
            return
        self._say("the TPU's health is known again", answers=True)
        self._state, self._health = (node.state, node.health) if node else (State.ABSENT, Health.HEALTH_UNSPECIFIED)

    def _say(self, line: str, *, answers: bool) -> None:
        if answers is not self._answers:
            self._log(line)
        self._answers = answers


def watching(
    watch: Watch, silent_for: Callable[[], float], act: Callable[[WatchDecision], None], every: float
) -> AbstractContextManager[None]:
    """Run the checks in a thread while the body runs, until a check decides to end the training.

    Args:
        watch: runs the checks.
        silent_for: returns the seconds since the training last showed progress.
        act: ends the training; called in the thread, at most once, with the decision.
        every: seconds between two checks.
    """

    def look(last: bool) -> float | None:
        verdict = GO_ON if last else watch.look(silent_for())
        if verdict.course is Course.GO_ON:
            return every
        act(verdict)
        return None

    return beside(look, every, "tpu-watch")
