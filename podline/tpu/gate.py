"""The gate: admits a process to a TPU that is healthy and free, and lets it out again.

The gate looks, asks the policy, waits or repairs, and looks again, until the policy says go or give up. Every wait
ends: a look that does not say go is followed by a pause, by a repair that is counted against its budget, or by the end;
and what a pause waits for has a patience.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from podline.errors import HangError, PodlineError, TpuUnhealthyError
from podline.frozen import Frozen
from podline.tpu import lock, notices, policy
from podline.tpu.clock import Clock
from podline.tpu.lock import LockView
from podline.tpu.node import Health, Node, State
from podline.tpu.policy import GONE, Action, Decision, Fact, Situation
from podline.tpu.recovery import Recovery
from podline.tpu.reservation import Reservation
from podline.tpu.tpu_log import Event, TpuLog
from podline.tpu_settings import TpuSettings

if TYPE_CHECKING:
    from podline.tpu.client import CloudTpu


class View(Frozen):
    """What a look showed; ``end_announced`` is empty unless the machine said that its end is near."""

    name: str
    node: Node | None
    reserved_by_another: bool
    cooling: float
    lock: LockView | None
    end_announced: str = ""

    def situation(self, facts: frozenset[Fact], *, patient: bool) -> Situation:
        """This view as the policy sees it, with what the node's symptoms amount to."""
        more = {
            Fact.RESERVED: self.reserved_by_another,
            Fact.LOCKED: self.lock is not None and self.lock.holder is not None,
            Fact.ANNOUNCED: bool(self.end_announced),
            Fact.COOLING: self.cooling > 0,
        }
        return Situation(
            state=self.node.state if self.node else State.ABSENT,
            health=self.node.health if self.node else Health.HEALTH_UNSPECIFIED,
            facts=facts | {fact for fact, true in more.items() if true},
            patient=patient,
        )

    def details(self) -> str:
        """Who or what is waited for, where that is known; empty, or in brackets."""
        if self.lock is not None and self.lock.holder is not None:
            return f" ({self.lock.holder})"
        return f" ({self.end_announced})" if self.end_announced else ""

    def __str__(self) -> str:
        if self.node is None:
            return f"node {self.name}: {State.ABSENT}"
        described = f" ({self.node.health_description})" if self.node.health_description else ""
        return f"node {self.name}: {self.node.state}, {self.node.health}{described}"


@contextlib.contextmanager
def admitted(settings: TpuSettings, api: CloudTpu, clock: Clock, tpu_log: TpuLog) -> Iterator[None]:
    """The body runs with a TPU that is ready, healthy and this run's alone; afterwards the cool-down starts.

    Args:
        settings: which TPU, and what may be done to get it.
        api: the Cloud TPU API.
        clock: asked and slept on.
        tpu_log: what happened in earlier attempts of the run counts against the budgets; what happens now is added.

    Raises:
        TransientError: there is no TPU to be had now.
        PermanentError: nor will there be one until a person has changed something.
    """
    gate = Gate(settings, api, clock, tpu_log)
    gate.enter()
    try:
        yield
    except BaseException as error:
        gate.leave(error)
        raise
    gate.leave(None)


class Gate:
    """The gate of one node; see :func:`admitted`, which is how to use it."""

    def __init__(self, settings: TpuSettings, api: CloudTpu, clock: Clock, tpu_log: TpuLog) -> None:
        self._settings, self._api, self._clock, self._tpu_log = settings, api, clock, tpu_log
        self._limits = settings.budget
        self._recovery = Recovery(settings, api, clock, tpu_log)
        self._reservation = Reservation(settings.reservation, self._limits.cool_down, clock)
        self._failure: PodlineError | None = None

    def enter(self) -> None:
        """Returns when the TPU may be used; raises when it is not to be had."""
        began = self._clock.now()
        try:
            view = self._until_go()
        except BaseException as error:
            self._tpu_log.tell(self._clock.now(), Event.GIVE_UP, str(error) or type(error).__name__)
            self._reservation.give_back()
            raise
        now = self._clock.now()
        self._tpu_log.tell(now, Event.GO, str(view), now - began)

    def leave(self, why: BaseException | None) -> None:
        """Gives the TPU back; to be called when the process that used it is gone.

        Args:
            why: what ended the use, None if it ended well. A node on which something hung is restarted before its next
                use, if it may be.
        """
        left = "left the TPU in good order"
        if why is not None:
            left = f"left the TPU: {str(why) or type(why).__name__}"
        if self._settings.machine is not None:
            try:
                left += f"; its lock is {lock.clear(self._settings.machine, self._tpu_log.say)}"
            except PodlineError as error:
                left += f"; {error}"
        event = Event.HANG if isinstance(why, HangError) else Event.LEAVE
        self._tpu_log.tell(self._clock.now(), event, left)
        self._reservation.give_back()

    def _until_go(self) -> View:
        since, patience = self._clock.now(), self._limits.patience
        while True:
            view = self._recovery.insist(self._look)
            now = self._clock.now()
            facts = policy.facts_of(view.node.symptoms if view.node else (), now, self._limits)
            if self._tpu_log.hung and self._limits.restart.attempts:
                facts |= {Fact.HUNG}
            situation = view.situation(facts, patient=now - since < patience)
            decision = policy.decide(situation, self._tpu_log.tried(), self._limits)
            if decision.action is Action.GO:
                return view
            if decision.action is Action.GIVE_UP:
                last = f"; last of all: {self._failure}" if self._failure else ""
                raise decision.error(f"{view}: {decision.why}{last}")
            if decision.action is Action.WAIT:
                self._wait(f"{view}: {decision.why}{view.details()}")
            elif self._repair(view, decision):
                restarted = decision.action is Action.RESTART
                step = self._limits.restart if restarted else self._limits.recreate
                since, patience = self._clock.now(), step.patience
            else:
                self._wait(f"{view}: to be looked at again after {self._failure}")

    def _look(self) -> View:
        mine = self._reservation.take()
        machine, announced, locked = self._settings.machine, "", None
        if machine is not None:
            locked = lock.clear(machine, self._tell_lock) if mine else lock.look(machine)
            announced = notices.end_announced(machine, self._clock.now(), self._limits.maintenance_lead)
        return View(
            name=self._settings.node,
            node=self._api.node(self._settings.node),
            reserved_by_another=not mine,
            cooling=self._reservation.cooling,
            lock=locked,
            end_announced=announced,
        )

    def _repair(self, view: View, decision: Decision) -> bool:
        """Restarts or recreates; whether that worked. What is no fault of the node's is raised, and not counted."""
        began = self._clock.now()
        event, repair = Event.RECREATE, self._recovery.recreate
        if decision.action is Action.RESTART:
            event, repair = Event.RESTART, self._recovery.restart
        elif view.node is not None and view.node.state in GONE:
            event = Event.REPLACE
        what = f"{view}: {decision.why}"
        self._tpu_log.say(f"{what}; now: {event}")
        self._failure = None
        try:
            repair()
        except TpuUnhealthyError as error:
            self._failure = error
            what += f"; it did not work: {error}"
        worked = self._failure is None
        self._tpu_log.tell(began, event, what, self._clock.now() - began, worked=worked)
        return worked

    def _tell_lock(self, what: str) -> None:
        self._tpu_log.tell(self._clock.now(), Event.LOCK, what)

    def _wait(self, why: str) -> None:
        self._tpu_log.waited(self._clock.now(), why, self._limits.poll)
        self._clock.sleep(self._limits.poll)
