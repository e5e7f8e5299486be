"""Reads ``TF_CONFIG``: the processes that train together; :mod:`podline.settings.launchers` has other sources.

``TF_CONFIG`` is TensorFlow's variable, in JSON: the ``host:port`` of every process of each job, and this process's job
and index; see :data:`EXAMPLE`. The first worker is the chief, unless there is a job ``chief`` with one process. This
module does not need TensorFlow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from podline.base.errors import SettingsError, WorkerLostError
from podline.base.frozen import Frozen

VARIABLE = "TF_CONFIG"
EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
# In this order, because a chief comes first.
_JOBS = ("chief", "worker")

# Classes of tf.errors about another process, and classes that are about another process only with certain messages.
_AWAY = frozenset({"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"})
_PERHAPS_AWAY = frozenset({"InternalError", "UnknownError", "FailedPreconditionError"})
_TOLD = r"collective|coordination|grpc server|/job:(worker|chief)|incarnation"
_LENGTH = 300


class Cluster(Frozen):
    """Processes that train together.

    Attributes:
        addresses: ``host:port`` of each process.
        place: index of this process, from 0; process 0 is the chief, which alone writes to the run's folder.
    """

    addresses: tuple[str, ...]
    place: int

    @property
    def chief(self) -> bool:
        """Return whether this process is the chief."""
        return self.place == 0


def parse(text: str) -> Cluster:
    """Parse ``TF_CONFIG``.

    Raises:
        SettingsError: the text is not JSON, or does not describe this process.
    """
    try:
        document = json.loads(text)
        cluster, task = document["cluster"], document["task"]
        jobs: dict[str, list[str]] = {job: _addresses(cluster[job]) for job in _JOBS if cluster.get(job)}
        kind, index = str(task["type"]), int(task["index"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(
            f"{VARIABLE} is {text!r} ({type(error).__name__}: {error}), expected a value such as {EXAMPLE}"
        ) from error
    other = sorted(set(cluster) - set(_JOBS))
    if other:
        raise SettingsError(f"{VARIABLE} has a job {other[0]!r}; expected only {' and '.join(_JOBS)}")
    if not 0 <= index < len(jobs.get(kind, [])):
        raise SettingsError(f"{VARIABLE} has the task {kind} {index}, expected a task of a cluster of {_sizes(jobs)}")
    if len(jobs.get("chief", [])) > 1:
        raise SettingsError(f"{VARIABLE} has {len(jobs['chief'])} chiefs, expected at most one")
    before = sum(len(jobs.get(job, [])) for job in _JOBS[: _JOBS.index(kind)])
    return Cluster(
        addresses=tuple(address for job in _JOBS for address in jobs.get(job, [])),
        place=before + index,
    )


def lost(kind: str, message: str) -> WorkerLostError | None:
    """Decide whether an exception of TensorFlow in this process was caused by the loss of another process.

    Args:
        kind: name of the exception's class.
        message: message of the exception.

    Returns:
        The error to raise instead; None if the failure has another cause.
    """
    line = " ".join(message.split())
    told = re.search(_TOLD, line, re.IGNORECASE)
    if kind not in _AWAY and not (kind in _PERHAPS_AWAY and told):
        return None
    start = told.start() if told else 0
    return WorkerLostError(
        "another worker has ended or is unreachable, or this one's address is in use; start all of them again, and "
        f"they resume from the last checkpoint ({kind}: {line[start : start + _LENGTH]})"
    )


def _addresses(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        raise TypeError(f"a job is a list of host:port, not {value!r}")
    return value


def _sizes(jobs: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{len(addresses)} × {job}" for job, addresses in jobs.items()) or "no processes"
