"""Slurm's scheduler, used through Slurm's commands.

Users set partition, account and time limit by sbatch's environment variables (``SBATCH_PARTITION``, …).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from podline.base.errors import SettingsError, WorkerLostError
from podline.settings.environment import job_environment
from podline.settings.machine import Settings

_SECONDS = 60.0
# What sbatch writes if it cannot reach slurmctld, which may only be restarting.
_AWAY = re.compile("unable to contact slurm controller|socket timed out|zero bytes were transmitted", re.IGNORECASE)
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
        """Return whether the job is pending or running, and not already ending."""
        return not self.ended and self.state != "COMPLETING"


class Slurm:
    """The jobs of a Slurm cluster. :class:`podline.stages.supervision.ray_jobs.RayJobs` has the same methods.

    A method raises WorkerLostError if the scheduler does not answer, and SettingsError if it is not installed.

    Attributes:
        NAME: the scheduler's name in messages.
        PROGRAM: program and options of a job's command; its arguments are the spec file and the events file.
    """

    NAME = "Slurm"
    # One process on each host.
    PROGRAM = (sys.executable, "-P", "-m", "podline.stages.supervision.rank")

    def submit(self, name: str, root: str, command: Sequence[str], machine: Settings, output: str) -> str:
        """Submit a command that runs once on each host; return the job's id.

        Slurm starts the job when earlier jobs of the same name have ended. It does not requeue a failed job; the
        stage's retry submits a new one. Without the setting ``hosts``, the job gets two hosts.

        Args:
            name: the job's name.
            root: the store's location, which distinguishes jobs of the same name for other stores.
            command: the command of each process; ``{job}`` in it stands for the job's id.
            machine: settings with the number of hosts.
            output: the file for the job's output, also with ``{job}``.

        Raises:
            SettingsError: Slurm refuses the job.
        """
        line = " ".join(shlex.quote(word).replace("{job}", "'\"$SLURM_JOB_ID\"'") for word in command)
        script = f"export PODLINE_CLUSTER_PORT=$((20000 + SLURM_JOB_ID % 400 * 100))\nsrun --ntasks-per-node=1 {line}\n"
        hosts, file = machine.hosts.replace("..", "-") or 2, output.replace("{job}", "%j")
        options = [f"--job-name={name}", f"--comment={root}", f"--nodes={hosts}", "--parsable"]
        options += ["--exclusive", "--no-requeue", "--dependency=singleton", f"--output={file}"]
        done = _ran("sbatch", *options, "--wrap", script)
        if done.returncode and _AWAY.search(done.stderr):
            raise WorkerLostError(f"sbatch: got {_said(done)!r}, expected a job id; check that slurmctld runs")
        if done.returncode:
            raise SettingsError(
                f"sbatch: got {_said(done)!r}, expected a job id; correct hosts={machine.hosts!r} "
                "or sbatch's variables, such as SBATCH_PARTITION"
            )
        return done.stdout.partition(";")[0].strip()

    def find(self, name: str, root: str) -> ScheduledJob | None:
        """Return this user's newest job ``name`` for the store ``root`` that Slurm remembers, or None."""
        done = _ran("squeue", "--me", "--noheader", "--states=all", f"--name={name}", "--format=%i|%T|%r|%k")
        if done.returncode:
            raise WorkerLostError(f"squeue: got {_said(done)!r}, expected a list of jobs; check that slurmctld runs")
        rows = [line.split("|", 3) for line in done.stdout.splitlines()]
        ours = [ScheduledJob(*row[:3]) for row in rows if row[3:] == [root]]
        return max(ours, key=lambda job: int(job.number), default=None)

    def cancel(self, number: str) -> None:
        """Cancel a job: its processes get SIGTERM and save a checkpoint. A job that has ended is no error."""
        done = _ran("scancel", number)
        if done.returncode and done.stderr.strip():  # scancel says nothing about a job that has ended
            raise WorkerLostError(f"scancel: got {_said(done)!r}, expected no error; check that slurmctld runs")

    def where(self, number: str, output: str) -> str:
        """Return the path of the file with a job's output."""
        return output.replace("{job}", number)


def _ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 (Slurm's own programs)
            [program, *arguments],
            env=job_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError:
        raise SettingsError(
            f"launch=slurm: the program {program} was not found; install Slurm's commands on the machine of the flow"
        ) from None
    except subprocess.TimeoutExpired:
        raise WorkerLostError(f"{program}: got no answer within {_SECONDS:g} s; check that slurmctld runs") from None


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip().rpartition("\n")[2] or f"exit code {done.returncode}"
