"""The interface of schedulers for :mod:`podline.stages.supervision.job`: submit, find and cancel a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from podline.settings.machine import Settings

PENDING, COMPLETED, CANCELLED = "PENDING", "COMPLETED", "CANCELLED"
_ENDED = frozenset(
    f"{COMPLETED} {CANCELLED} BOOT_FAIL DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)


class ScheduledJob(NamedTuple):
    """A job in the list of its scheduler.

    Attributes:
        number: the job's id.
        state: the job's state, by Slurm's names.
        reason: the scheduler's text about why the job waits or failed.
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
        """Return whether the job is pending or running, and not being cancelled."""
        return not self.ended and self.state != "COMPLETING"


class Scheduler(Protocol):
    """A scheduler of jobs.

    Each method raises WorkerLostError if the scheduler does not answer, and SettingsError if it is not installed.

    Attributes:
        NAME: the scheduler's name in messages.
        PROGRAM: program and options of a job's command; its arguments are the spec file and the events file.
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
            output: the file for the job's output, also with ``{job}``; ignored by schedulers that store the output.

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
