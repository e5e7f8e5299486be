"""The patrol's table of leftovers between runs, and the action for each.

The gate looks after a TPU for the run that is about to use it; the patrol looks between runs: a node that costs money
for nothing, a request that holds a name, a run on the node that no flow waits for. It touches the node of the settings
and no other. Nothing here looks at a node, a server or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from podline.frozen import Frozen
from podline.tpu.node import GONE, IN_QUEUE, Node, QueuedResource, State
from podline.tpu_settings import TpuSettings


class Remedy(StrEnum):
    """A remedy of the patrol."""

    NOTHING = "nothing"
    STOP = "stop it"
    DELETE = "delete it"
    GIVE_BACK = "give it back"
    CANCEL = "cancel it"


class PatrolCase(StrEnum):
    """A condition that the patrol can find, in words."""

    USED = "the node: a run lives that may use it"
    GONE = "the node: preempted or terminated, or its request failed, and no run lives"
    OFF = "the node: not there, or not running"
    RESTING = "the node: ready or in the queue, unused, but not for tpu.idle_stop yet"
    IDLE = "the node: unused for tpu.idle_stop"
    IDLE_FIXED = "the node: the same, but spot, or from the queue, or still in it"
    LEFT = "the lease: taken, and no run lives"
    ORPHAN = "a run on the node: the flow that waited for it has ended"


@dataclass(frozen=True)
class PatrolRule:
    """An action, and its reason in words that follow "because"."""

    do: Remedy
    why: str


TABLE: dict[PatrolCase, PatrolRule] = {
    PatrolCase.USED: PatrolRule(Remedy.NOTHING, "the run looks after it"),
    PatrolCase.GONE: PatrolRule(
        Remedy.DELETE, "it is of no use and holds quota or a name; the next run makes a new one"
    ),
    PatrolCase.OFF: PatrolRule(Remedy.NOTHING, "it costs next to nothing"),
    PatrolCase.RESTING: PatrolRule(Remedy.NOTHING, "the next run may come soon, and a start takes minutes"),
    PatrolCase.IDLE: PatrolRule(Remedy.STOP, "it costs money; the next run starts it"),
    PatrolCase.IDLE_FIXED: PatrolRule(Remedy.DELETE, "such a node cannot be stopped; the next run makes a new one"),
    PatrolCase.LEFT: PatrolRule(Remedy.GIVE_BACK, "a server that keeps leases in memory forgets them when it restarts"),
    PatrolCase.ORPHAN: PatrolRule(Remedy.CANCEL, "no flow waits for what it does"),
}


class PatrolFinding(Frozen):
    """A condition that was found, with the outcome."""

    what: str = Field(description="its kind and name")
    seen: str = Field(description="the details")
    case: PatrolCase = Field(description="its row in the table")
    done: str = Field(default="", description="the patrol's action, or why there was none although the table has one")

    def row(self) -> dict[str, str]:
        """Return the finding as a row of a table."""
        rule = TABLE[self.case]
        return {
            "what": self.what,
            "seen": self.seen,
            "to do": str(rule.do),
            "because": rule.why,
            "done": self.done,
        }

    def __str__(self) -> str:
        rule = TABLE[self.case]
        return f"{self.what}: {self.seen}; {rule.do}, because {rule.why}" + (f" ({self.done})" if self.done else "")


def costs(node: Node | None, request: QueuedResource | None) -> bool:
    """Return whether a node costs money, or will as soon as its request is fulfilled."""
    waiting = request is not None and request.state in IN_QUEUE
    return waiting or (node is not None and node.state is State.READY)


def node_case(
    node: Node | None, request: QueuedResource | None, settings: TpuSettings, *, used: bool, idle_for: float
) -> PatrolCase:
    """Return what the settings' node amounts to.

    Args:
        node: as the API describes it; None if there is none.
        request: for it, in Google's queue; None if there is none.
        settings: after how long it counts as idle.
        used: whether a run lives that may use it.
        idle_for: seconds for which it was seen to cost money without a use.
    """
    if used:
        return PatrolCase.USED
    refused = request is not None and request.state not in {*IN_QUEUE, "ACTIVE", "DELETING", "SUSPENDING"}
    if refused or (node is not None and node.state in GONE):
        return PatrolCase.GONE
    if not costs(node, request):
        return PatrolCase.OFF
    if not settings.idle_stop or idle_for < 60 * settings.idle_stop:
        return PatrolCase.RESTING
    return PatrolCase.IDLE_FIXED if request or (node and node.spot) else PatrolCase.IDLE


def forbidden(do: Remedy, settings: TpuSettings) -> str:
    """Return why an action is not taken although the table says so; empty if it is."""
    if do is Remedy.NOTHING:
        return ""
    if settings.patrol == "report":
        return "not done: the setting tpu.patrol is report"
    if do in {Remedy.STOP, Remedy.DELETE} and settings.machine is not None:
        return "not done: this machine is the node itself"
    if do is Remedy.DELETE and settings.spec is None:
        return "not done: the settings have no spec to make a new one from"
    return ""


def table() -> list[tuple[str, ...]]:
    """Return the table as text, for people; the first row names the columns."""
    return [("the patrol finds", "and does", "because"), *((case, rule.do, rule.why) for case, rule in TABLE.items())]
