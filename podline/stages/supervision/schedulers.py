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
    """A scheduler of jobs.

    Each method raises WorkerLostError if the scheduler does not answer, and SettingsError if it is not installed.

    Attributes:
        NAME: the scheduler's name in messages.
        PROGRAM: the first words of a job's command; the file of the spec and the file for the chief's events follow.
    """

    NAME: str
    PROGRAM: Sequence[str]

    def submit(self, name: str, root: str, command: Sequence[str], machine: Settings, output: str, /) -> str:
        """Submit a command that trains on several hosts; return the job's id.

        Args:
            name: the job's name.
            root: the store's location, which distinguishes jobs of the same name for other stores.
            command: the command of each process; ``{job}`` in it stands for the job's id.
            machine: settings with the number of hosts.
            output: the file for the job's output, with ``{job}`` as above, unless the scheduler keeps the output.

        Raises:
            SettingsError: the scheduler refuses the job.
        """
        ...

    def find(self, name: str, root: str) -> ScheduledJob | None:
        """Return the newest job with a name for a store, among those that the scheduler remembers."""
        ...

    def cancel(self, number: str) -> None:
        """Cancel a job: its processes save a checkpoint and end."""
        ...

    def where(self, number: str, output: str, /) -> str:
        """Return the file or page with a job's output; ``output`` as for :meth:`submit`."""
        ...
