"""TPU nodes and requests as frozen values. They do not need Google's client, whose import takes half a second.

The names of states, health and symptoms are those of ``google.cloud.tpu.v2``. :attr:`State.ABSENT` is added for a node
that does not exist.
"""

from __future__ import annotations

from enum import StrEnum

from podline.base.frozen import Frozen


class State(StrEnum):
    """A state of a node."""

    ABSENT = "ABSENT"
    STATE_UNSPECIFIED = "STATE_UNSPECIFIED"
    CREATING = "CREATING"
    READY = "READY"
    RESTARTING = "RESTARTING"
    REIMAGING = "REIMAGING"
    DELETING = "DELETING"
    REPAIRING = "REPAIRING"
    STOPPED = "STOPPED"
    STOPPING = "STOPPING"
    STARTING = "STARTING"
    PREEMPTED = "PREEMPTED"
    TERMINATED = "TERMINATED"
    HIDING = "HIDING"
    HIDDEN = "HIDDEN"
    UNHIDING = "UNHIDING"
    UNKNOWN = "UNKNOWN"


GONE = frozenset({State.PREEMPTED, State.TERMINATED})
"""Final states: a node in one of them can only be deleted."""


class Health(StrEnum):
    """A node's health according to Google's monitor."""

    HEALTH_UNSPECIFIED = "HEALTH_UNSPECIFIED"
    HEALTHY = "HEALTHY"
    TIMEOUT = "TIMEOUT"
    UNHEALTHY_TENSORFLOW = "UNHEALTHY_TENSORFLOW"
    UNHEALTHY_MAINTENANCE = "UNHEALTHY_MAINTENANCE"


IN_QUEUE = frozenset({"CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES"})
"""States of a request that may still be fulfilled."""


class Symptom(Frozen):
    """A problem of a node; ``kind`` is the API's name for the problem, ``at`` its time in seconds since 1970."""

    kind: str
    at: float

    def age(self, now: float) -> float:
        """Return the seconds from the symptom to ``now``; 0 for a symptom in the future, as clocks may differ."""
        return max(now - self.at, 0.0)


class Node(Frozen):
    """A node; ``queued_resource`` names the request that created it, or is empty; ``hosts`` counts its machines."""

    name: str
    state: State
    health: Health = Health.HEALTH_UNSPECIFIED
    health_description: str = ""
    symptoms: tuple[Symptom, ...] = ()
    accelerator_type: str = ""
    runtime_version: str = ""
    spot: bool = False
    queued_resource: str = ""
    hosts: int = 1

    @property
    def stoppable(self) -> bool:
        """Return whether the node can be stopped and started again; if not, it can only be deleted.

        The API's StopNode "is only available with single TPU nodes" (cloud_tpu.proto, v2), so not for slices of several
        machines. Spot nodes cannot be started again ("Manage TPU Spot VMs"). A queued request controls its own node.
        """
        return not (self.spot or self.queued_resource or self.hosts > 1)


class QueuedResource(Frozen):
    """A request for a node in Google's queue; ``problem`` explains a FAILED request."""

    name: str
    state: str
    problem: str = ""
