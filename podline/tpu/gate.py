"""The gate: admits a process to a TPU once it is healthy and free, and releases the TPU afterwards.

The gate inspects the TPU, asks the policy, waits or repairs, and inspects again, until the policy returns GO or
GIVE_UP. Every loop ends: after an inspection comes GO, a wait of limited length, a repair from a limited budget, or an
error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from podline.base.errors import HangError, PodlineError, TpuUnhealthyError
from podline.base.figures import duration
from podline.base.frozen import Frozen
from podline.settings.tpu_settings import TpuSettings
from podline.tpu import lock, notices, policy, turn
from podline.tpu.clock import Clock
from podline.tpu.lock import LockView
from podline.tpu.node import GONE, Health, Node, State
from podline.tpu.policy import Action, Decision, Fact, Situation
from podline.tpu.recovery import Recovery
from podline.tpu.tpu_log import Event, TpuLog, Tried
from podline.tpu.turn import Turn, TurnView

if TYPE_CHECKING:
    from podline.tpu.client import CloudTpu


class View(Frozen):
    """The state of a TPU at one time."""

    name: str = Field(description="the node's name")
    at: float = Field(description="the time in seconds since 1970")
    node: Node | None = Field(description="the node as the API describes it; None if it does not exist")
    turn: TurnView = Field(description="which process of this machine uses the TPU, or the rest of the cool-down")
    lock: LockView | None = Field(default=None, description="libtpu's lock; None if Podline does not run on the TPU VM")
    end_announced: str = Field(default="", description="reason for the announced end of the machine, or empty")

    def decision(self, tried: Tried, settings: TpuSettings, *, hung: bool, patient: bool) -> Decision:
        """Return the policy's decision for this state.

        Args:
            tried: the numbers of repairs so far.
            settings: settings with the limits.
            hung: whether the last use of the node hung.
            patient: whether the wait is still within its limit.
        """
        node = self.node
        limits = settings.budget(stoppable=node is None or node.stoppable)
        more = {
            Fact.RESERVED: bool(self.turn.holder),
            Fact.LOCKED: self.lock is not None and bool(self.lock.holder),
            Fact.ANNOUNCED: bool(self.end_announced),
            Fact.COOLING: self.turn.cooling > 0,
            Fact.HUNG: hung and limits.restart.attempts + limits.recreate.attempts > 0,
        }
        facts = policy.facts_of(node.symptoms if node else (), self.at, limits)
        situation = Situation(
            state=node.state if node else State.ABSENT,
            health=node.health if node else Health.HEALTH_UNSPECIFIED,
            facts=facts | {fact for fact, true in more.items() if true},
            patient=patient,
        )
        return policy.decide(situation, tried, limits)

    def lines(self) -> dict[str, str]:
        """Return the state as text, by title."""
        symptoms = sorted(self.node.symptoms if self.node else (), key=lambda symptom: -symptom.at)
        lines = {
            "node": str(self).removeprefix("node "),
            "symptoms": ", ".join(f"{each.kind} {duration(each.age(self.at))} ago" for each in symptoms) or "none",
            "turn": str(self.turn),
        }
        if self.node is not None:
            what = [self.node.accelerator_type, self.node.runtime_version, "spot" if self.node.spot else ""]
            lines["made as"] = ", ".join(word for word in what if word)
        if self.lock is not None:
            lines |= {"lock": str(self.lock), "announced": self.end_announced or "nothing"}
        return lines

    def __str__(self) -> str:
        if self.node is None:
            return f"node {self.name}: {State.ABSENT}"
        described = f" ({self.node.health_description})" if self.node.health_description else ""
        return f"node {self.name}: {self.node.state}, {self.node.health}{described}"


def look(settings: TpuSettings, api: CloudTpu, clock: Clock, user: TurnView | None = None) -> View:
    """Return the state of a TPU without changing anything; find its user on this machine unless ``user`` is given."""
    machine, limits, now = settings.machine, settings.limits, clock.now()
    return View(
        name=settings.node,
        at=now,
        node=api.node(settings.node),
        turn=user or turn.look(settings.turn_file, limits.cool_down, clock),
        lock=lock.look(machine) if machine else None,
        end_announced=notices.end_announced(machine, now, limits.maintenance_lead) if machine else "",
    )


@contextlib.contextmanager
def admitted(settings: TpuSettings, api: CloudTpu, clock: Clock, tpu_log: TpuLog) -> Iterator[None]:
    """Run the body once the TPU is ready, healthy and reserved for this run; then release the TPU.

    Args:
        settings: the TPU, and the budgets for repairs.
        api: the Cloud TPU API.
        clock: the clock for waiting.
        tpu_log: has the repairs of earlier attempts, which count against the budgets; gets the new events.

    Raises:
        TransientError: the TPU is not available now.
        PermanentError: the TPU will not be available until a person changes something.
    """
    gate = _Gate(settings, api, clock, tpu_log)
    gate.enter()
    try:
        yield
    except BaseException as error:
        gate.leave(error)
        raise
    gate.leave(None)


class _Gate:
    """The gate of one node."""

    def __init__(self, settings: TpuSettings, api: CloudTpu, clock: Clock, tpu_log: TpuLog) -> None:
        self._settings, self._api, self._clock, self._tpu_log = settings, api, clock, tpu_log
        self._limits = settings.budget()
        self._recovery = Recovery(settings, api, clock, tpu_log)
        self._turn = Turn(settings.turn_file, self._limits.cool_down, clock)
        self._failure: PodlineError | None = None

    def enter(self) -> None:
        """Wait until the TPU may be used; raise an error if it is unavailable."""
        began = self._clock.now()
        try:
            view = self._until_go()
            now = self._clock.now()
            self._tpu_log.tell(now, Event.GO, str(view), now - began)
        except BaseException as error:
            with self._given_back():
                self._tpu_log.tell(self._clock.now(), Event.GIVE_UP, str(error) or type(error).__name__)
            raise

    def leave(self, why: BaseException | None) -> None:
        """Release the TPU after the end of the process that used it.

        Args:
            why: the error that ended the use, or None. After a HangError, the gate restarts the node before its next
                use, if the budget allows.
        """
        left = "released the TPU"
        if why is not None:
            left = f"released the TPU after an error: {str(why) or type(why).__name__}"
        with self._given_back():
            if self._settings.machine is not None:
                try:
                    left += f"; its lock is {lock.clear(self._settings.machine, self._tpu_log.say)}"
                except PodlineError as error:
                    left += f"; {error}"
            event = Event.HANG if isinstance(why, HangError) else Event.LEAVE
            self._tpu_log.tell(self._clock.now(), event, left)

    @contextlib.contextmanager
    def _given_back(self) -> Iterator[None]:
        """Give the turn back after the body. Only log errors of the body, which must not hide the cause of the end."""
        try:
            yield
        except PodlineError as error:
            self._tpu_log.say(f"the TPU log is not complete: {error}")
        finally:
            self._turn.give_back()

    def _until_go(self) -> View:
        since, patience = self._clock.now(), self._limits.patience
        while True:
            view = self._recovery.insist(self._look)
            patient = self._clock.now() - since < patience
            decision = view.decision(self._tpu_log.tried(), self._settings, hung=self._tpu_log.hung, patient=patient)
            if decision.action is Action.GO:
                return view
            if decision.action is Action.GIVE_UP:
                last = f"; the last repair failed: {self._failure}" if self._failure else ""
                raise decision.error(f"{view}: {decision.why}{last}")
            if decision.action is Action.WAIT:
                about = view.lock.holder if view.lock and view.lock.holder else view.end_announced
                self._wait(f"{view}: {decision.why}" + (f" ({about})" if about else ""))
            elif self._repair(view, decision):
                restarted = decision.action is Action.RESTART
                step = self._limits.restart if restarted else self._limits.recreate
                since, patience = self._clock.now(), step.patience
            else:
                self._wait(f"{view}: next check after {self._failure}")

    def _look(self) -> View:
        """Take the turn and remove a stale lock, if possible; return the state of the TPU."""
        taken = self._turn.take()
        if taken and self._settings.machine is not None:
            lock.clear(self._settings.machine, lambda what: self._tpu_log.tell(self._clock.now(), Event.LOCK, what))
        user = TurnView(cooling=self._turn.cooling) if taken else TurnView(holder="of another run")
        return look(self._settings, self._api, self._clock, user)

    def _repair(self, view: View, decision: Decision) -> bool:
        """Restart or recreate the node, and log the repair; return whether it worked.

        A failed repair counts against the budget. Other errors, such as those of quota or credentials, are raised.
        """
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
            what += f"; the {event} failed: {error}"
        worked = self._failure is None
        self._tpu_log.tell(began, event, what, self._clock.now() - began, worked=worked)
        return worked

    def _wait(self, why: str) -> None:
        self._tpu_log.waited(self._clock.now(), why, self._limits.poll)
        self._clock.sleep(self._limits.poll)
