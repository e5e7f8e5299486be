"""What :mod:`podline.stages.supervision.job` asks of a scheduler: to submit a job, to find it, and to cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from podline.settings.machine import Settings

PENDING, COMPLETED, CANCELLED = "PENDING", "COMPLETED", "CANCELLED"
_ENDED = frozenset(
    f"{COMPLETED} {CANCELLED} BOOT_FAIL DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)


class ScheduledJob(NamedTuple):
    """A job as its scheduler shows it.

    Attributes:
        number: its id.
        state: in Slurm's words.
        reason: why it waits or failed, in the scheduler's words.
    """

    number: str
    state: str
    reason: str

    @property
    def ended(self) -> bool:
        """Return whether the job has ended on all hosts."""
        return self.state in _ENDED

    @property
    def goes_on(self) -> bool:
        """Return whether the job is pending or running; a job that is being cancelled is neither."""
        return not self.ended and self.state != "COMPLETING"


class Scheduler(Protocol):
    """A scheduler of jobs; each method raises WorkerLostError if it does not answer, SettingsError if it is not there.

    Attributes:
        NAME: for messages.
        PROGRAM: the beginning of a job's command; a spec and a file for events of the chief follow.
    """

    NAME: str
    PROGRAM: Sequence[str]

    def submit(self, name: str, root: str, command: Sequence[str], machine: Settings, output: str, /) -> str:
        """Submit a command that trains on several hosts; return the job's id, ``{job}`` in the command and the output.

        Args:
            name: of the job.
            root: of the store; tells it from jobs of the same name for other stores.
            command: of a process.
            machine: the setting ``hosts`` says how many.
            output: a file for what is printed, unless the scheduler keeps it.

        Raises:
            SettingsError: the scheduler refuses the job.
        """
        ...

    def find(self, name: str, root: str) -> ScheduledJob | None:
        """Return the newest job of a name for a store, of those that the scheduler remembers."""
        ...

    def cancel(self, number: str) -> None:
        """Cancel a job: its processes save a checkpoint and end."""
        ...

    def where(self, number: str, output: str, /) -> str:
        """Return the file or page that has what a job prints; ``output`` as for :meth:`submit`."""
        ...
