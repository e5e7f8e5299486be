"""The state of a TPU: node, health, symptoms, locks, lease, and what the gate would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podline.errors import PodlineError
from podline.frozen import Frozen
from podline.tpu import lock, notices, policy, reservation
from podline.tpu.clock import Clock, in_words
from podline.tpu.gate import View
from podline.tpu.lock import LockView
from podline.tpu.node import Node
from podline.tpu.reservation import ReservationView
from podline.tpu.tpu_log import Tried
from podline.tpu_settings import TpuSettings

if TYPE_CHECKING:
    from podline.tpu.client import CloudTpu


class Status(Frozen):
    """What a look from outside shows; it takes nothing and removes nothing.

    Attributes:
        at: when, in seconds since 1970.
        problem: why the node could not be asked for; empty if it could.
        problem_type: the error's class, a name of :mod:`podline.errors`; empty as well if it could.
        lock: None where Podline does not run on the TPU VM.
        lease: who has it among the flow runs of a Prefect server; empty if none was asked.
        decision: what the gate would do now, and why; empty if the node could not be asked for.
    """

    name: str
    at: float
    node: Node | None = None
    problem: str = ""
    problem_type: str = ""
    lock: LockView | None = None
    reservation: ReservationView
    end_announced: str = ""
    lease: str = ""
    decision: str = ""

    def __str__(self) -> str:
        lines = [("node", self._node())]
        if self.node is not None:
            node = self.node
            health = f"{node.health} ({node.health_description})" if node.health_description else str(node.health)
            lines += [("health", health), ("symptoms", self._symptoms(node))]
        if self.lock is not None:
            lines += [("lock", str(self.lock)), ("announced", self.end_announced or "nothing")]
        lines += [("reservation", str(self.reservation))]
        if self.lease:
            lines += [("lease", self.lease)]
        if self.decision:
            lines += [("the gate would", self.decision)]
        return "\n".join(f"{name:<14}  {value}" for name, value in lines)

    def _node(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        if self.node is None:
            return f"{self.name}: there is none"
        what = [self.node.accelerator_type, self.node.runtime_version, "spot" if self.node.spot else ""]
        described = ", ".join(word for word in what if word)
        return f"{self.name}: {self.node.state}" + (f" ({described})" if described else "")

    def _symptoms(self, node: Node) -> str:
        newest = sorted(node.symptoms, key=lambda symptom: -symptom.at)
        told = [f"{symptom.kind} {in_words(symptom.age(self.at))} ago" for symptom in newest]
        return ", ".join(told) or "none"


def status(settings: TpuSettings, api: CloudTpu, clock: Clock) -> Status:
    """Looks at a TPU from outside; an API that does not answer is part of what is shown."""
    now, limits, machine = clock.now(), settings.budget, settings.machine
    shown = Status(
        name=settings.node,
        at=now,
        lock=lock.look(machine) if machine else None,
        reservation=reservation.look(settings.reservation, limits.cool_down, clock),
        end_announced=notices.end_announced(machine, now, limits.maintenance_lead) if machine else "",
    )
    try:
        node = api.node(settings.node)
    except PodlineError as error:
        return shown.model_copy(update={"problem": str(error), "problem_type": type(error).__name__})
    view = View(
        name=settings.node,
        node=node,
        reserved_by_another=shown.reservation.holder is not None,
        cooling=shown.reservation.cooling,
        lock=shown.lock,
        end_announced=shown.end_announced,
    )
    facts = policy.facts_of(node.symptoms if node else (), now, limits)
    decision = policy.decide(view.situation(facts, patient=True), Tried(), limits)
    return shown.model_copy(update={"node": node, "decision": f"{decision.action}: {decision.why}"})
