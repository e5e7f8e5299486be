"""TPU nodes and requests as frozen values, without Google's client, which takes half a second to import.

The names of states, kinds of health and symptoms are those of ``google.cloud.tpu.v2``. One state is our own,
:attr:`State.ABSENT`, for a node that the API does not know.
"""

from __future__ import annotations

from enum import StrEnum

from podline.frozen import Frozen


class State(StrEnum):
    """A stage in a node's life."""

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
"""States that a node leaves only by being deleted."""


class Health(StrEnum):
    """A node's health, by Google's monitor."""

    HEALTH_UNSPECIFIED = "HEALTH_UNSPECIFIED"
    HEALTHY = "HEALTHY"
    TIMEOUT = "TIMEOUT"
    UNHEALTHY_TENSORFLOW = "UNHEALTHY_TENSORFLOW"
    UNHEALTHY_MAINTENANCE = "UNHEALTHY_MAINTENANCE"


IN_QUEUE = frozenset({"CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES"})
"""States of a request that may yet be fulfilled."""


class Symptom(Frozen):
    """Something that went wrong on a node, by the API's name of its kind; ``at`` is in seconds since 1970."""

    kind: str
    at: float

    def age(self, now: float) -> float:
        """Return the seconds since the symptom; a symptom from the future, by a clock ahead of ours, is new."""
        return max(now - self.at, 0.0)


class Node(Frozen):
    """A node; ``queued_resource`` is the request that it came from, empty if there was none."""

    name: str
    state: State
    health: Health = Health.HEALTH_UNSPECIFIED
    health_description: str = ""
    symptoms: tuple[Symptom, ...] = ()
    accelerator_type: str = ""
    runtime_version: str = ""
    spot: bool = False
    queued_resource: str = ""


class QueuedResource(Frozen):
    """A request for a node in Google's queue; ``problem`` says why one that is FAILED is."""

    name: str
    state: str
    problem: str = ""
