"""Podline's exceptions: permanent errors and transient errors.

*Permanent* errors fail at once. *Transient* errors are retried with the delays of their class, see :class:`Budgets`. A
message has one line (or a few short ones) with the file, the record, the found and the expected value, and the remedy.

Errors cross processes: a stage's child process writes :meth:`PodlineError.to_json`, and the parent process raises the
same class with :func:`from_json`; for a class of another package, the nearest class of this module.
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
# Layer or operation ("where") and cause in messages of Keras and TensorFlow; stack traces stand between the two. The
# anchor and the bounds keep the search linear in the length of a message, which may contain a whole array.
_IN_LAYER = re.compile(
    r"Exception encountered when calling (?P<where>[^\n]{1,300}?)\.call\(\)\.\s+"
    r"(?P<cause>[^\n]+(?<=:)\s+[^\n]+|[^\n]+)"
)
_IN_GRAPH = re.compile(r"^(?P<cause>[^\n]+)\n[ \t]*\[\[\{\{node (?P<where>[^}\s]+)\}\}", re.MULTILINE)
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\{\{.{0,300}?\}\}\s*")


def one_line(error: BaseException) -> str:
    """Describe an exception in one line of at most 500 characters; for TensorFlow: layer or operation, and cause."""
    text = str(error).strip()
    whole = str(error.args[0]) if isinstance(error, KeyError) and error.args else text  # its text is a repr
    found = _IN_LAYER.search(whole) or _IN_GRAPH.search(whole)
    line = " ".join(_MARKS.sub("", f"{found['where']}: {found['cause']}").split()) if found else text.partition("\n")[0]
    line = line or type(error).__name__
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


class PodlineError(Exception):
    """An error whose message Podline wrote for the user.

    Attributes:
        exit_code: exit code of the command line.
        heading: first words of a failed run's message in Prefect's UI; a row of docs/reference/states.md.
    """

    exit_code: ClassVar[int] = 1
    heading: ClassVar[str] = "Unexpected"

    def __init__(self, message: str = "") -> None:
        """Create an error; control characters in the message are escaped, since it may contain untrusted names."""
        super().__init__(plain(message))

    @property
    def known(self) -> type[PodlineError]:
        """The class of this error, or its nearest base class in this module, which every process knows."""
        return next(each for each in type(self).__mro__ if each in _KNOWN.values())

    def to_json(self) -> dict[str, Any]:
        """Return this error as JSON, from which :func:`from_json` restores an error of the class :attr:`known`."""
        return {"type": type(self).__name__, "known": self.known.__name__, "message": str(self)}


class PermanentError(PodlineError):
    """A retry with the same input cannot help."""


class SettingsError(PermanentError):
    """A setting, option or spec is unknown, out of bounds, or contradicts another."""

    heading = "Settings"
    exit_code = 2


class SourceError(PermanentError):
    """Raw data is missing, damaged or malicious, or belongs to another data set than requested."""

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
    """A store cannot be read or written, or lacks what was asked for."""

    heading = "Store"
    exit_code = 5


class DivergenceError(PermanentError):
    """A loss or gradient is not finite, or a loss exploded."""

    heading = "Training diverged"
    exit_code = 6


class PrunedError(PermanentError):
    """A search stopped this trial: other trials were better after the same number of steps. Its progress is saved."""


class SanityError(PermanentError):
    """A model is not significantly better than guessing."""

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
    """A promotion rule refuses a model as the champion of its recipe."""

    heading = "Promotion refused"
    exit_code = 11


class UndecidedError(PermanentError):
    """The promotion test is undecided: the model may or may not be worse than the reference. The champion stays."""

    heading = "Promotion undecided"
    exit_code = 12


class EngineError(PermanentError):
    """A Beam engine is missing, lacks this release of Podline, has a wrong clock, or refuses the account."""

    heading = "Engine set-up"
    exit_code = 13


class CancelledError(PermanentError):
    """A person or another program cancelled the work outside Podline: a job of a cluster, a run on a TPU node."""

    heading = "Cancelled"
    exit_code = 14


class RefusedOperationError(PermanentError):
    """TensorFlow cannot run an operation of the model or of the input pipeline; retries fail in the same way."""

    heading = "Refused by TensorFlow"
    exit_code = 15


class TooLittleMemoryError(PermanentError):
    """Memory ran out, and the killed process itself used most of it, so a retry cannot help."""

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
    """Memory ran out, but the killed process used only a small part of it; one retry."""

    heading = "Out of memory"
    retry_delays = (60.0,)


class StageTimeoutError(TransientError):
    """A stage took longer than its time-out."""

    heading = "Time-out"


class HangError(TransientError):
    """A stage made no progress for too long; a retry resumes its saved progress."""

    heading = "No progress"


class HangAnewError(HangError):
    """A stage that saves no progress hung; one retry, since a retry repeats all its work."""

    retry_delays = (60.0,)


class ServerAwayError(TransientError):
    """A Prefect server does not answer."""

    heading = "Prefect's server"


class StoreUnavailableError(TransientError):
    """A store does not answer, or is overloaded."""

    heading = "Store unavailable"


class SourceUnavailableError(TransientError):
    """A server of raw data did not answer, or the connection broke; the downloaded bytes are kept."""

    heading = "Download"


class PreemptedError(TransientError):
    """SIGTERM ended the stage; a training has saved its progress."""

    heading = "Asked to end"
    exit_code = 143  # 128 + SIGTERM
    retry_delays = (5.0, 60.0, 300.0)
    budget = "preemptions"


class WorkerLostError(TransientError):
    """A process of a multi-host training, or its scheduler, is lost; a retry resumes from the checkpoint."""

    heading = "Training process lost"
    retry_delays = (10.0, 60.0, 300.0)


class EngineLostError(TransientError):
    """A Beam engine for conversions does not answer, or lost its workers; a retry reuses written shards."""

    heading = "Engine lost"


class OvertakenError(TransientError):
    """Another process changed the champion during a promotion; a retry compares with the new champion."""

    heading = "Champion changed"
    retry_delays = (1.0, 5.0, 30.0)


class OtherWriterError(TransientError):
    """Another process writes the same run or data set, or has taken over this process's lock."""

    heading = "Another writer"


class TpuApiError(TransientError):
    """The Cloud TPU API does not answer, or is overloaded."""

    heading = "TPU API"


class TpuUnhealthyError(TransientError):
    """A TPU is still not READY and HEALTHY after all allowed repairs."""

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
    """A TensorFlow error of unknown cause; one retry."""

    heading = "TensorFlow"
    retry_delays = (60.0,)
    budget = "unexplained"


@dataclass(frozen=True)
class Retry:
    """The next retry: number ``number`` of at most ``most``, after ``delay`` seconds."""

    delay: float
    number: int
    most: int


@dataclass
class Budgets:
    """Counts the retries of one stage, per budget; each class of error has its own delays."""

    used: Counter[str] = field(default_factory=Counter[str])

    def after(self, error: object) -> Retry | None:
        """Count an error; return the next retry, or None if a retry cannot help or the budget is used up."""
        if not isinstance(error, TransientError) or self.used[error.budget] >= len(error.retry_delays):
            return None
        delay = error.retry_delays[self.used[error.budget]]
        self.used[error.budget] += 1
        return Retry(delay, self.used[error.budget], len(error.retry_delays))


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM; for a real-time signal, ``signal NUMBER``."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


_KNOWN: dict[str, type[PodlineError]] = {
    name: each for name, each in globals().items() if isinstance(each, type) and issubclass(each, PodlineError)
}


def headed() -> list[type[PodlineError]]:
    """Return the error classes of this module that define a heading, without the base class."""
    return [error for error in _KNOWN.values() if error is not PodlineError and "heading" in vars(error)]


def exit_codes() -> dict[int, str]:
    """Return the meaning of each exit code of the command line, in ascending order."""
    meanings = {0: "Done", 1: "A bug, or an unforeseen error", 130: "Interrupted with Ctrl-C"}
    for error in headed():
        before = f"{meanings[error.exit_code]}, " if error.exit_code in meanings else ""
        meanings[error.exit_code] = before + error.heading
    meanings[TransientError.exit_code] = "A later attempt may succeed: killed, hung, timed out, no answer"
    return dict(sorted(meanings.items()))


def from_json(document: dict[str, Any]) -> PodlineError:
    """Restore an error from :meth:`PodlineError.to_json`; an unknown class becomes a :class:`PodlineError`."""
    known = _KNOWN.get(str(document.get("known", document.get("type"))))
    message = str(document.get("message", "no message"))
    return known(message) if known else PodlineError(f"{document.get('type')}: {message}")
