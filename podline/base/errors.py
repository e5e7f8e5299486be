"""The errors, in two groups: those for which a retry may help, and those for which it cannot.

*Permanent* errors fail at once; *transient* ones are retried with the delays of their cause, see :class:`Budgets`. A
message is one line (or a few short ones): it names the file, the record, both values and the remedy.

Errors are passed between processes: a stage's child writes :meth:`PodlineError.to_json`, and its parent raises the same
class with :func:`from_json`.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from podline.base.plain import plain

_LONGEST_LINE = 500
# Where Keras and TensorFlow say which layer or operation failed, and why; stacks stand between the two.
_IN_LAYER = re.compile(
    r"Exception encountered when calling (?P<where>[^\n]+?)\.call\(\)\.\s+(?P<cause>[^\n]+(?<=:)\s+[^\n]+|[^\n]+)"
)
_IN_GRAPH = re.compile(r"(?P<cause>[^\n]+)\n\s*\[\[\{\{node (?P<where>[^}\s]+)\}\}")
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\{\{.*?\}\}\s*")


def one_line(error: BaseException) -> str:
    """Return an error in one line of bounded length; of one in a layer or a graph, the place and the cause."""
    text = str(error).strip()
    whole = str(error.args[0]) if isinstance(error, KeyError) and error.args else text  # its text is a repr
    found = _IN_LAYER.search(whole) or _IN_GRAPH.search(whole)
    line = " ".join(_MARKS.sub("", f"{found['where']}: {found['cause']}").split()) if found else text.partition("\n")[0]
    line = line or type(error).__name__
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


class PodlineError(Exception):
    """A failure that Podline explains.

    Attributes:
        exit_code: exit code of the command line.
        heading: first words of a failed run's message in Prefect's UI; a row of docs/reference/states.md.
    """

    exit_code: ClassVar[int] = 1
    heading: ClassVar[str] = "Unexpected"

    def __init__(self, message: str = "") -> None:
        """Create an error; its message is cleaned for terminals, since it may contain untrusted names."""
        super().__init__(plain(message))

    def to_json(self) -> dict[str, Any]:
        """Return this error as JSON, from which :func:`from_json` restores the same class."""
        return {"type": type(self).__name__, "message": str(self)}


class PermanentError(PodlineError):
    """A retry with the same input cannot help."""


class SettingsError(PermanentError):
    """A setting, option or spec is unknown, out of bounds, or contradicts another."""

    heading = "Settings"
    exit_code = 2


class SourceError(PermanentError):
    """A raw archive is missing, damaged, hostile, or another data set than requested."""

    heading = "Raw data"
    exit_code = 3


class ArtifactError(PermanentError):
    """A file written by Podline no longer matches its manifest or checksum."""

    heading = "Damaged artifact"
    exit_code = 4


class TakenError(ArtifactError):
    """A name already exists with other content."""

    heading = "Name taken"


class StoreError(PermanentError):
    """A store cannot be read or written: no permission, no space, no such place."""

    heading = "Store"
    exit_code = 5


class DivergenceError(PermanentError):
    """A loss or gradient is not finite, or a loss exploded."""

    heading = "Training diverged"
    exit_code = 6


class PrunedError(PermanentError):
    """A search ended a trial because others were better at the same point; its progress is saved."""


class SanityError(PermanentError):
    """A result is not better than guessing."""

    heading = "No better than guessing"
    exit_code = 7


class CredentialsError(PermanentError):
    """Credentials for Google Cloud are missing, expired or revoked."""

    heading = "Credentials"
    exit_code = 8


class QuotaError(PermanentError):
    """The project's quota of TPUs is used up."""

    heading = "Quota"
    exit_code = 9


class TpuSetupError(PermanentError):
    """A TPU, its project or its machine is not set up for the run."""

    heading = "TPU set-up"
    exit_code = 10


class RefusedError(PermanentError):
    """A rule refuses a model as the champion of its recipe."""

    heading = "Promotion refused"
    exit_code = 11


class UndecidedError(PermanentError):
    """A model is neither shown to be worse than the champion nor shown not to be; the champion stays."""

    heading = "Promotion undecided"
    exit_code = 12


class EngineError(PermanentError):
    """An engine of conversions lacks Podline, has another version, or refuses the account."""

    heading = "Engine set-up"
    exit_code = 13


class CancelledError(PermanentError):
    """A person or another program cancelled the work at its place: a job of a cluster, a run on a TPU's node."""

    heading = "Cancelled"
    exit_code = 14


class RefusedOperationError(PermanentError):
    """TensorFlow refuses an operation of the model or of its input, with any retry."""

    heading = "Refused by TensorFlow"
    exit_code = 15


class TooLittleMemoryError(PermanentError):
    """Memory ran out, and the process that the kernel ended held most of it itself."""

    heading = "Too little memory"
    exit_code = 16


class TransientError(PodlineError):
    """A retry after a delay may help.

    ``retry_delays`` are seconds before the first, second, … retry of errors with the same ``budget``.
    """

    exit_code = 75  # EX_TEMPFAIL of sysexits.h
    retry_delays: ClassVar[tuple[float, ...]] = (60.0, 300.0, 900.0)
    budget: ClassVar[str] = "failures"


class ChildKilledError(TransientError):
    """A stage's process was ended from outside: SIGKILL, the out-of-memory killer, a crash in native code."""

    heading = "Process killed"
    retry_delays = (5.0, 60.0, 300.0)


class OutOfMemoryError(ChildKilledError):
    """Memory ran out, and the kernel ended a process that did not hold most of it; one retry."""

    heading = "Out of memory"
    retry_delays = (60.0,)


class StageTimeoutError(TransientError):
    """A stage took longer than its time-out."""

    heading = "Time-out"


class HangError(TransientError):
    """A stage made no progress for too long; one that keeps nothing for its next start is tried again once."""

    heading = "No progress"


class HangAnewError(HangError):
    """A stage that keeps nothing for its next start made no progress; one retry, since it repeats the same work."""

    retry_delays = (60.0,)


class ServerAwayError(TransientError):
    """A Prefect server does not answer."""

    heading = "Prefect's server"


class StoreUnavailableError(TransientError):
    """A store does not answer, or is overloaded."""

    heading = "Store unavailable"


class SourceUnavailableError(TransientError):
    """A server of raw archives did not answer, or the connection broke; fetched bytes are kept."""

    heading = "Download"


class PreemptedError(TransientError):
    """SIGTERM asked the stage to end; its progress was saved."""

    heading = "Asked to end"
    exit_code = 143  # 128 + SIGTERM
    retry_delays = (5.0, 60.0, 300.0)
    budget = "preemptions"


class WorkerLostError(TransientError):
    """A process of a training on several hosts was lost or did not start; all resume from the checkpoint."""

    heading = "Training process lost"
    retry_delays = (10.0, 60.0, 300.0)


class EngineLostError(TransientError):
    """An engine of conversions does not answer, or lost its workers; written shards are reused."""

    heading = "Engine lost"


class OvertakenError(TransientError):
    """Another process changed the champion meanwhile; the model is judged again, against the new champion."""

    heading = "Champion changed"
    retry_delays = (1.0, 5.0, 30.0)


class OtherWriterError(TransientError):
    """Another process writes the same run or data set, or has taken over from this one."""

    heading = "Another writer"


class TpuApiError(TransientError):
    """The Cloud TPU API does not answer, or is overloaded."""

    heading = "TPU API"


class TpuUnhealthyError(TransientError):
    """A TPU is not READY and HEALTHY after the repairs in its budget."""

    heading = "TPU unhealthy"
    retry_delays = (300.0, 900.0, 1800.0)


class TpuInUseError(TransientError):
    """Another process uses the TPU."""

    heading = "TPU in use"
    retry_delays = (300.0, 600.0, 1200.0)


class TpuGoneError(TransientError):
    """A TPU was preempted or deleted."""

    heading = "TPU taken away"
    retry_delays = (30.0, 60.0, 120.0, 300.0, 600.0)
    budget = "preemptions"


class TpuCapacityError(TransientError):
    """Google Cloud has no TPU of the type now, although the quota allows it."""

    heading = "No TPU free"
    retry_delays = (600.0, 1800.0, 3600.0)


class UnexplainedError(TransientError):
    """An unknown failure of TensorFlow; it is retried once."""

    heading = "TensorFlow"
    retry_delays = (60.0,)
    budget = "unexplained"


@dataclass(frozen=True)
class Retry:
    """The next retry: after ``delay`` seconds; number ``number`` of ``most`` in its budget."""

    delay: float
    number: int
    most: int


@dataclass
class Budgets:
    """The used budgets of one stage: each cause has its own delays and count."""

    used: Counter[str] = field(default_factory=Counter[str])

    def after(self, error: object) -> Retry | None:
        """Count a failure; return the next retry, or None."""
        if not isinstance(error, TransientError) or self.used[error.budget] >= len(error.retry_delays):
            return None
        delay = error.retry_delays[self.used[error.budget]]
        self.used[error.budget] += 1
        return Retry(delay, self.used[error.budget], len(error.retry_delays))


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have none but their number."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _classes(root: type[PodlineError]) -> dict[str, type[PodlineError]]:
    found = {root.__name__: root}
    for subclass in root.__subclasses__():
        found.update(_classes(subclass))
    return found


def headed() -> list[type[PodlineError]]:
    """Return Podline's own errors that have a heading, without the base class."""
    known = list(_classes(PodlineError).values())[1:]
    return [error for error in known if error.__module__ == __name__ and "heading" in vars(error)]


def exit_codes() -> dict[int, str]:
    """Return the meaning of each exit code of the command line, in ascending order."""
    meanings = {0: "Done", 1: "A bug, or an unforeseen error", 130: "Interrupted with Ctrl-C"}
    for error in headed():
        before = f"{meanings[error.exit_code]}, " if error.exit_code in meanings else ""
        meanings[error.exit_code] = before + error.heading
    meanings[TransientError.exit_code] = "May be gone later: killed, hung, timed out, away"
    return dict(sorted(meanings.items()))


def from_json(document: dict[str, Any]) -> PodlineError:
    """Restore the error of :meth:`PodlineError.to_json`; an unknown type becomes a :class:`PodlineError`."""
    known = _classes(PodlineError).get(str(document.get("type")))
    message = str(document.get("message", "no message"))
    return known(message) if known else PodlineError(f"{document.get('type')}: {message}")
