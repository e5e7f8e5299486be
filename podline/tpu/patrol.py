"""The patrol's table: leftovers between runs, and the action for each.

The gate repairs a TPU for the run that is about to use it. The patrol works between runs: it finds a node that costs
money without use, a request that blocks a name, and a run on the node that no flow waits for. It only affects the node
of the settings. This module inspects no node, server or clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from podline.base.frozen import Frozen
from podline.settings.tpu_settings import TpuSettings
from podline.tpu.node import GONE, IN_QUEUE, Node, QueuedResource, State


class Remedy(StrEnum):
    """An action of the patrol."""

    NOTHING = "nothing"
    STOP = "stop it"
    DELETE = "delete it"
    GIVE_BACK = "give it back"
    CANCEL = "cancel it"


class PatrolCase(StrEnum):
    """A condition that the patrol can find, as text."""

    USED = "the node: a living run may use it"
    UNSEEN = "the node: who uses it cannot be seen"
    GONE = "the node: preempted or terminated, or its request failed, and no run lives"
    OFF = "the node: not there, or not running"
    RESTING = "the node: ready or in the queue, unused, but not for tpu.idle_stop yet"
    IDLE = "the node: unused for tpu.idle_stop"
    IDLE_FIXED = "the node: the same, but spot, of several machines, or of the queue"
    LEFT = "the lease: taken, and no run lives"
    ORPHAN = "a run on the node: the flow that waited for it has ended"


@dataclass(frozen=True)
class PatrolRule:
    """An action, and its reason as words after "because"."""

    do: Remedy
    why: str


TABLE: dict[PatrolCase, PatrolRule] = {
    PatrolCase.USED: PatrolRule(Remedy.NOTHING, "the run takes care of it"),
    PatrolCase.UNSEEN: PatrolRule(Remedy.NOTHING, "a living run might lose it"),
    PatrolCase.GONE: PatrolRule(
        Remedy.DELETE, "it is useless and blocks quota or a name; the next run creates a new one"
    ),
    PatrolCase.OFF: PatrolRule(Remedy.NOTHING, "it costs almost nothing"),
    PatrolCase.RESTING: PatrolRule(Remedy.NOTHING, "the next run may come soon, and a start takes minutes"),
    PatrolCase.IDLE: PatrolRule(Remedy.STOP, "it costs money; the next run starts it"),
    PatrolCase.IDLE_FIXED: PatrolRule(Remedy.DELETE, "such a node cannot be stopped; the next run creates a new one"),
    PatrolCase.LEFT: PatrolRule(Remedy.GIVE_BACK, "a server that keeps leases in memory forgets them when it restarts"),
    PatrolCase.ORPHAN: PatrolRule(Remedy.CANCEL, "no flow waits for its result"),
}


class PatrolFinding(Frozen):
    """A condition that was found, with the outcome."""

    what: str = Field(description="its kind and name")
    seen: str = Field(description="the details")
    case: PatrolCase = Field(description="its row in the table")
    done: str = Field(default="", description="the patrol's action, or the reason for doing nothing")

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
    """Return whether a node costs money, or will when its request is fulfilled."""
    waiting = request is not None and request.state in IN_QUEUE
    return waiting or (node is not None and node.state is State.READY)


def node_case(
    node: Node | None, request: QueuedResource | None, settings: TpuSettings, *, used: bool | None, idle_for: float
) -> PatrolCase:
    """Return the condition of the settings' node.

    Args:
        node: the API's description; None if the node does not exist.
        request: its request in Google's queue, or None.
        settings: settings with the idle time.
        used: whether a living run may use the node; None if that cannot be seen.
        idle_for: seconds for which the node was seen to cost money without a use.
    """
    if used is not False:
        return PatrolCase.USED if used else PatrolCase.UNSEEN
    refused = request is not None and request.state not in {*IN_QUEUE, "ACTIVE", "DELETING", "SUSPENDING"}
    if refused or (node is not None and node.state in GONE):
        return PatrolCase.GONE
    if not costs(node, request):
        return PatrolCase.OFF
    if not settings.idle_stop or idle_for < 60 * settings.idle_stop:
        return PatrolCase.RESTING
    return PatrolCase.IDLE_FIXED if request or (node and not node.stoppable) else PatrolCase.IDLE


def forbidden(do: Remedy, settings: TpuSettings) -> str:
    """Return why an action of the table is not taken; empty if it is taken."""
    if do is Remedy.NOTHING:
        return ""
    if settings.patrol == "report":
        return "not done: the setting tpu.patrol is report"
    if do in {Remedy.STOP, Remedy.DELETE} and settings.machine is not None:
        return "not done: this machine is the node itself"
    if do is Remedy.DELETE and settings.spec is None:
        return "not done: the settings have no spec to create a new one from"
    return ""


def table() -> list[tuple[str, ...]]:
    """Return the table as text, for people; the first row names the columns."""
    return [("the patrol finds", "and does", "because"), *((case, rule.do, rule.why) for case, rule in TABLE.items())]
