"""TPU nodes as frozen values, without the client library.

The names of states, kinds of health and symptoms are those of ``google.cloud.tpu.v2``; one state is our own,
:attr:`State.ABSENT`, for a node that the API does not know.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from podline.frozen import Frozen


class State(StrEnum):
    """Where a node is in its life."""

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


class Health(StrEnum):
    """What Google's health monitor says of a node."""

    HEALTH_UNSPECIFIED = "HEALTH_UNSPECIFIED"
    HEALTHY = "HEALTHY"
    TIMEOUT = "TIMEOUT"
    UNHEALTHY_TENSORFLOW = "UNHEALTHY_TENSORFLOW"
    UNHEALTHY_MAINTENANCE = "UNHEALTHY_MAINTENANCE"


class SymptomKind(StrEnum):
    """What went wrong on a node at some time."""

    SYMPTOM_TYPE_UNSPECIFIED = "SYMPTOM_TYPE_UNSPECIFIED"
    LOW_MEMORY = "LOW_MEMORY"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    EXECUTE_TIMED_OUT = "EXECUTE_TIMED_OUT"
    MESH_BUILD_FAIL = "MESH_BUILD_FAIL"
    HBM_OUT_OF_MEMORY = "HBM_OUT_OF_MEMORY"
    PROJECT_ABUSE = "PROJECT_ABUSE"


class QueueState(StrEnum):
    """Where a request for TPUs is in Google's queue."""

    STATE_UNSPECIFIED = "STATE_UNSPECIFIED"
    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    PROVISIONING = "PROVISIONING"
    FAILED = "FAILED"
    DELETING = "DELETING"
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"


IN_QUEUE = frozenset(
    {QueueState.CREATING, QueueState.ACCEPTED, QueueState.PROVISIONING, QueueState.WAITING_FOR_RESOURCES}
)
"""States of a request that may yet be fulfilled."""


class Symptom(Frozen):
    """One symptom; ``at`` is in seconds since 1970."""

    kind: SymptomKind
    at: float
    details: str = ""
    worker: str = ""

    def age(self, now: float) -> float:
        """Seconds since the symptom; a symptom from the future, by a clock that is ahead of ours, is new."""
        return max(now - self.at, 0.0)


class Node(Frozen):
    """A node; ``created`` is in seconds since 1970."""

    name: str
    state: State
    health: Health = Health.HEALTH_UNSPECIFIED
    health_description: str = ""
    symptoms: tuple[Symptom, ...] = ()
    accelerator_type: str = ""
    runtime_version: str = ""
    created: float = 0.0
    spot: bool = False
    queued_resource: str = ""
    ours: bool = Field(default=False, description="Podline made it")


class QueuedResource(Frozen):
    """A request for nodes in Google's queue; ``problem`` says why one that is FAILED is."""

    name: str
    state: QueueState
    nodes: tuple[str, ...] = ()
    problem: str = ""
