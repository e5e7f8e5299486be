"""What the stand-in's nodes, operations and API do as time goes by, written down before it starts.

``life("READY/HEALTHY 40, READY/UNHEALTHY_TENSORFLOW")`` is a node that is well for 40 seconds and unhealthy ever after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from google.rpc import code_pb2


@dataclass(frozen=True)
class Phase:
    """What a node is for some seconds; a symptom appears when the phase begins."""

    state: str = "READY"
    health: str = "HEALTHY"
    seconds: float = math.inf
    symptom: str = ""


Life = tuple[Phase, ...]
WELL: Life = (Phase(),)


def life(text: str) -> Life:
    """Phases from ``STATE/HEALTH[+SYMPTOM] [SECONDS], …``; the last one lasts for ever unless it says otherwise."""
    phases = []
    for part in text.split(","):
        what, _, seconds = part.strip().partition(" ")
        state, _, rest = what.partition("/")
        health, _, symptom = rest.partition("+")
        phases.append(Phase(state, health or "HEALTH_UNSPECIFIED", float(seconds or math.inf), symptom))
    return tuple(phases)


@dataclass(frozen=True)
class Attempt:
    """One operation: how long it takes, and how it ends.

    ``code`` other than OK is an error of the operation, or, if ``at_once``, of the call that would have begun it.
    """

    seconds: float = 60.0
    life: Life = WELL
    code: int = code_pb2.OK
    message: str = ""
    at_once: bool = False


NO_QUOTA = Attempt(
    code=code_pb2.RESOURCE_EXHAUSTED,
    message="Quota limit 'TPUV4PodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone us-central2-b.",
    at_once=True,
)
NO_CAPACITY = Attempt(
    code=code_pb2.RESOURCE_EXHAUSTED,
    message='There is no more capacity in the zone "us-central2-b"; you can try in another zone where Cloud TPU Nodes '
    "are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x7adf6d58c08b0aa4]",
)


@dataclass(frozen=True)
class Outage:
    """The API answers every call with an error from ``start`` to ``end``, seconds after the stand-in's start.

    A ``lost`` answer is one to a call that was carried out all the same.
    """

    start: float
    end: float
    code: int = code_pb2.UNAVAILABLE
    message: str = "The service is currently unavailable."
    lost: bool = False


EXPIRED_MESSAGE = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential."
)


@dataclass(frozen=True)
class Script:
    """All that happens: the first life (None: there is no node), and the operations in turn, the last one repeated."""

    life: Life | None = WELL
    stops: tuple[Attempt, ...] = (Attempt(30.0),)
    starts: tuple[Attempt, ...] = (Attempt(60.0),)
    deletes: tuple[Attempt, ...] = (Attempt(20.0),)
    creates: tuple[Attempt, ...] = (Attempt(120.0),)
    turns: tuple[Attempt, ...] = (Attempt(600.0),)
    """How long requests stay in the queue."""
    outages: tuple[Outage, ...] = ()
    spot: bool = False
    hosts: int = 1


@dataclass(frozen=True)
class Announcement:
    """The metadata server says ``value`` for ``key`` from ``start`` to ``end``, seconds after the stand-in's start."""

    start: float
    key: str
    value: str
    end: float = math.inf
