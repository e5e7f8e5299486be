"""The patrol's table: from findings to actions, and how they are told.

The gate looks after a TPU for the run that is about to use it; the patrol looks when nobody does: nodes that cost money
for nothing, requests that hold a name, leases and runs that nobody stands behind any more. It touches the node of the
settings and no other. Nothing here looks at a node, a server or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podline.frozen import Frozen
from podline.tpu.clock import in_words
from podline.tpu.node import IN_QUEUE, Node, QueuedResource, QueueState, State
from podline.tpu.policy import GONE
from podline.tpu_settings import TpuSettings


class Deed(StrEnum):
    """What the patrol does."""

    NOTHING = "nothing"
    STOP = "stop it"
    DELETE = "delete it"
    GIVE_BACK = "give it back"
    CRASH = "mark it as crashed"
    CANCEL = "cancel it"
    REMOVE = "remove it"


class PatrolCase(StrEnum):
    """What can be found, in words."""

    OTHERS = "a node or request that is not the settings' one"
    USED = "a node or request of ours: a run uses it"
    GONE = "a node of ours: preempted or terminated, and no run uses it"
    OFF = "a node of ours: not there, or not running"
    RESTING = "a node or request of ours: unused, but not for tpu.idle_stop yet"
    IDLE = "a node of ours: unused for tpu.idle_stop"
    IDLE_FIXED = "a node of ours: the same, but spot or queued"
    REFUSED = "a request of ours: failed or suspended, and no run uses its node"
    UNWANTED = "a request of ours: in the queue, unused for tpu.idle_stop"
    HELD = "the lease: a living run has it"
    ENDING = "the lease: taken, its holder is gone, and it may yet run out"
    LEFT = "the lease: the same, and it has not run out"
    ALIVE = "a run: it gives signs of life"
    UNSEEN = "a run: running, but it has never given any sign of life"
    SILENT = "a run: running, and its signs of life have stopped"
    ORPHAN = "a run on the node: the flow that waited for it has ended"
    LOCKED = "the lock of this machine's TPU: free, or held by a living process"
    STALE = "the lock of this machine's TPU: left by a dead process"


@dataclass(frozen=True)
class PatrolRule:
    """What is done in a case, and why, in words that follow "because"."""

    do: Deed
    why: str


TABLE: dict[PatrolCase, PatrolRule] = {
    PatrolCase.OTHERS: PatrolRule(Deed.NOTHING, "somebody else may use it"),
    PatrolCase.USED: PatrolRule(Deed.NOTHING, "the run looks after it"),
    PatrolCase.GONE: PatrolRule(Deed.DELETE, "it cannot be used again and holds quota; the next run makes a new one"),
    PatrolCase.OFF: PatrolRule(Deed.NOTHING, "it costs next to nothing"),
    PatrolCase.RESTING: PatrolRule(Deed.NOTHING, "the next run may come soon, and a start takes minutes"),
    PatrolCase.IDLE: PatrolRule(Deed.STOP, "it costs money; the next run starts it"),
    PatrolCase.IDLE_FIXED: PatrolRule(Deed.DELETE, "such a node cannot be stopped; the next run makes a new one"),
    PatrolCase.REFUSED: PatrolRule(Deed.DELETE, "it will not be fulfilled, and holds the node's name"),
    PatrolCase.UNWANTED: PatrolRule(Deed.DELETE, "nobody waits for it, and once fulfilled it costs money"),
    PatrolCase.HELD: PatrolRule(Deed.NOTHING, "it is given back, or ends with its holder"),
    PatrolCase.ENDING: PatrolRule(Deed.NOTHING, "a lease that is not renewed ends by itself"),
    PatrolCase.LEFT: PatrolRule(Deed.GIVE_BACK, "the server forgot whose it was, and it would never end"),
    PatrolCase.ALIVE: PatrolRule(Deed.NOTHING, "it is at work"),
    PatrolCase.UNSEEN: PatrolRule(Deed.NOTHING, "it may be one that gives no signs"),
    PatrolCase.SILENT: PatrolRule(Deed.CRASH, "its process or machine is gone; a retry goes on from its checkpoint"),
    PatrolCase.ORPHAN: PatrolRule(Deed.CANCEL, "nobody waits for what it does"),
    PatrolCase.LOCKED: PatrolRule(Deed.NOTHING, "it ends with its process"),
    PatrolCase.STALE: PatrolRule(Deed.REMOVE, "libtpu would take the TPU for used"),
}


class PatrolFinding(Frozen):
    """Something that was found, and what became of it.

    Attributes:
        what: its kind and name.
        seen: the details.
        case: what it amounts to.
        done: what the patrol did; if nothing although the table says something, why.
    """

    what: str
    seen: str
    case: PatrolCase
    done: str = ""

    def row(self) -> dict[str, str]:
        """As a row of a table for people."""
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
        wanted = f"{rule.do}, because {rule.why}"
        return f"{self.what}: {self.seen}; {wanted}" + (f" ({self.done})" if self.done else "")


def node_case(node: Node | None, settings: TpuSettings, *, used: bool, idle_for: float) -> PatrolCase:
    """What a node amounts to.

    Args:
        node: as the API describes it; None is the settings' one, which is not there.
        settings: whose node is ours.
        used: whether a run uses our node.
        idle_for: seconds for which nobody was seen to use it.
    """
    if node is None:
        return PatrolCase.OFF
    if node.name != settings.node:
        return PatrolCase.OTHERS
    if used:
        return PatrolCase.USED
    if node.state in GONE:
        return PatrolCase.GONE
    if node.state is not State.READY:
        return PatrolCase.OFF
    if not _is_idle(settings, idle_for):
        return PatrolCase.RESTING
    return PatrolCase.IDLE_FIXED if node.spot or node.queued_resource else PatrolCase.IDLE


def request_case(request: QueuedResource, settings: TpuSettings, *, used: bool, idle_for: float) -> PatrolCase:
    """What a request in Google's queue amounts to; see :func:`node_case`."""
    if settings.node not in (request.name, *request.nodes):
        return PatrolCase.OTHERS
    if used or request.state in {QueueState.ACTIVE, QueueState.DELETING, QueueState.SUSPENDING}:
        return PatrolCase.USED
    if request.state not in IN_QUEUE:
        return PatrolCase.REFUSED
    return PatrolCase.UNWANTED if _is_idle(settings, idle_for) else PatrolCase.RESTING


def run_case(silent_for: float | None, limit: float, *, orphan: bool) -> PatrolCase:
    """What a flow run amounts to that is said to be running.

    Args:
        silent_for: seconds since its last sign of life, None if it never gave one.
        limit: so many seconds are too many.
        orphan: whether it works for a flow run that has ended.
    """
    if silent_for is not None and silent_for > limit:
        return PatrolCase.SILENT
    if orphan:
        return PatrolCase.ORPHAN
    return PatrolCase.UNSEEN if silent_for is None else PatrolCase.ALIVE


def forbidden(do: Deed, settings: TpuSettings) -> str:
    """Why a deed is not done although the table says so; empty if it is."""
    if do is Deed.NOTHING:
        return ""
    if settings.patrol == "report":
        return "not done: the setting tpu.patrol is report"
    if do in {Deed.STOP, Deed.DELETE} and settings.machine is not None:
        return "not done: this machine is the node itself"
    if do is Deed.DELETE and settings.spec is None:
        return "not done: the settings have no spec to make a new one from"
    return ""


def explain(settings: TpuSettings | None) -> str:
    """The table as text, for people."""
    width, doing = max(map(len, PatrolCase)), max(map(len, Deed))
    lines = [
        f"{'the patrol finds':<{width}}  {'and does':<{doing}}  because",
        f"{'-' * width}  {'-' * doing}  {'-' * len('because')}",
    ]
    lines += [f"{case:<{width}}  {rule.do:<{doing}}  {rule.why}" for case, rule in TABLE.items()]
    if settings is not None:
        idle = f"{in_words(60 * settings.idle_stop)}" if settings.idle_stop else "never"
        lines += ["", f"tpu.idle_stop is {idle}; tpu.patrol is {settings.patrol}."]
    return "\n".join(lines)


def _is_idle(settings: TpuSettings, idle_for: float) -> bool:
    return bool(settings.idle_stop) and idle_for >= 60 * settings.idle_stop
