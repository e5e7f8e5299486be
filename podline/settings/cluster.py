"""Reads ``TF_CONFIG``: the processes that train together; :mod:`podline.settings.launchers` has other sources.

``TF_CONFIG`` is TensorFlow's variable, in JSON: the ``host:port`` of every process of each job, and this process's job
and index; see :data:`EXAMPLE`. The first worker is the chief, unless there is a job ``chief`` with one process. This
module does not need TensorFlow.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from podline.base.entry_points import reason
from podline.base.errors import SettingsError, WorkerLostError
from podline.base.frozen import Frozen

VARIABLE = "TF_CONFIG"
EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
_Job = Literal["chief", "worker"]
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


class _Task(BaseModel):
    type: _Job
    index: int = Field(ge=0)


class _TfConfig(BaseModel):
    cluster: dict[_Job, tuple[str, ...]]
    task: _Task


def parse(text: str) -> Cluster:
    """Parse ``TF_CONFIG``.

    Raises:
        SettingsError: the text is not JSON, or does not describe this process.
    """
    try:
        config = _TfConfig.model_validate_json(text)
    except ValidationError as error:
        raise SettingsError(f"{VARIABLE} is {text!r} ({reason(error)}), expected a value such as {EXAMPLE}") from error
    jobs, kind, index = config.cluster, config.task.type, config.task.index
    chiefs, workers = jobs.get("chief", ()), jobs.get("worker", ())
    if index >= len(jobs.get(kind, ())):
        sizes = ", ".join(f"{len(addresses)} × {job}" for job, addresses in jobs.items()) or "no processes"
        raise SettingsError(f"{VARIABLE} has the task {kind} {index}, expected a task of a cluster of {sizes}")
    if len(chiefs) > 1:
        raise SettingsError(f"{VARIABLE} has {len(chiefs)} chiefs, expected at most one")
    return Cluster(addresses=(*chiefs, *workers), place=index if kind == "chief" else len(chiefs) + index)


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
        "another worker has ended or is unreachable, or the address of this worker is in use; start all workers again, "
        f"and they resume from the last checkpoint ({kind}: {line[start : start + _LENGTH]})"
    )
