"""The patrol's table: conditions of an unused TPU, and the action for each.

The gate repairs a TPU for the run that is about to use it. The patrol works between runs: it finds an unused node that
costs money, a request that blocks a name, and a run on the node that no flow waits for. It only affects the node of the
settings. This module only decides; it inspects no node, server or clock.
"""

from __future__ import annotations

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
    """A condition that the patrol can find, as text: a row of the table.

    Attributes:
        do: the action for it.
        why: the reason of the action, as the text after "because".
    """

    do: Remedy
    why: str

    def __new__(cls, text: str, do: Remedy, why: str) -> PatrolCase:
        """Create a member whose value is the text alone."""
        case = str.__new__(cls, text)
        case._value_, case.do, case.why = text, do, why
        return case

    USED = "the node: a run may be using it", Remedy.NOTHING, "the run's gate repairs the node"
    UNSEEN = "the node: the server cannot tell whether a run uses it", Remedy.NOTHING, "a run might lose its node"
    GONE = (
        "the node: preempted or terminated, or its request failed, and no run uses it",
        Remedy.DELETE,
        "it cannot be used and blocks quota or a name; the next run creates a new one",
    )
    OFF = "the node: missing, or not running", Remedy.NOTHING, "it costs almost nothing"
    RESTING = (
        "the node: ready or in the queue, unused for less than tpu.idle_stop, or that is 0",
        Remedy.NOTHING,
        "the next run may come soon, and a start takes minutes",
    )
    IDLE = "the node: unused for tpu.idle_stop", Remedy.STOP, "it costs money; the next run starts it"
    IDLE_FIXED = (
        "the node: unused for tpu.idle_stop, but a spot node, of several machines, or from the queue",
        Remedy.DELETE,
        "such a node cannot be stopped; the next run creates a new one",
    )
    LEFT = (
        "the lease: taken, but no run uses the node",
        Remedy.GIVE_BACK,
        "a server that keeps leases in memory forgets them when it restarts",
    )
    ORPHAN = "a run on the node: the flow that waited for it has ended", Remedy.CANCEL, "no flow waits for its result"


class PatrolFinding(Frozen):
    """A node, lease or run that the patrol checked: its state, the row of the table, and the action."""

    what: str = Field(description="kind and name of the object")
    seen: str = Field(description="the object's state")
    case: PatrolCase = Field(description="the matching row of the table")
    done: str = Field(default="", description="the patrol's action, or why the table's action was not taken")

    def row(self) -> dict[str, str]:
        """Return the finding as a row of a table."""
        to_do = {"to do": str(self.case.do), "because": self.case.why}
        return {"what": self.what, "seen": self.seen, **to_do, "done": self.done}

    def __str__(self) -> str:
        done = f" ({self.done})" if self.done else ""
        return f"{self.what}: {self.seen}; {self.case.do}, because {self.case.why}{done}"


def costs(node: Node | None, request: QueuedResource | None) -> bool:
    """Return whether a node costs money, or will cost money once its request is fulfilled."""
    waiting = request is not None and request.state in IN_QUEUE
    return waiting or (node is not None and node.state is State.READY)


def node_case(
    node: Node | None, request: QueuedResource | None, settings: TpuSettings, *, used: bool | None, idle_for: float
) -> PatrolCase:
    """Return the row of the table that matches the node of the settings.

    Args:
        node: the node; None if it does not exist.
        request: the node's request in Google's queue, or None.
        settings: settings with ``idle_stop``.
        used: whether a run may be using the node; None if that is unknown.
        idle_for: seconds for which the node has cost money unused.
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
    """Return why the settings forbid an action of the table; empty if they allow it."""
    if do is Remedy.NOTHING:
        return ""
    if settings.patrol == "report":
        return "not done: the setting tpu.patrol is report"
    if do in {Remedy.STOP, Remedy.DELETE} and settings.machine is not None:
        return "not done: this machine is the node itself"
    if do is Remedy.DELETE and settings.spec is None:
        return "not done: without the settings tpu.spec, no new node could be created"
    return ""


def table() -> list[tuple[str, ...]]:
    """Return the table as rows of text; the first row has the titles of the columns."""
    return [("the patrol finds", "and does", "because"), *((case, case.do, case.why) for case in PatrolCase)]
