"""The :class:`podline.stages.supervision.schedulers.Scheduler` of Slurm, which uses Slurm's commands.

Users set partition, account and time limit by sbatch's environment variables (``SBATCH_PARTITION``, …).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence

from podline.base.errors import SettingsError, WorkerLostError
from podline.settings.environment import job_environment
from podline.settings.machine import Settings
from podline.stages.supervision.schedulers import ScheduledJob

_SECONDS = 60.0
NAME: str = "Slurm"
# One process on each host.
PROGRAM: Sequence[str] = (sys.executable, "-P", "-m", "podline.stages.supervision.rank")


def submit(name: str, root: str, command: Sequence[str], machine: Settings, output: str) -> str:
    """Submit a command that runs once on each host; return the job's id.

    Slurm starts the job when earlier jobs of the same name have ended. It does not requeue a failed job; the stage's
    retry submits a new one. Without the setting ``hosts``, the job gets two hosts.
    """
    line = " ".join(shlex.quote(word).replace("{job}", "'\"$SLURM_JOB_ID\"'") for word in command)
    script = f"export PODLINE_CLUSTER_PORT=$((20000 + SLURM_JOB_ID % 400 * 100))\nsrun --ntasks-per-node=1 {line}\n"
    options = [
        f"--job-name={name}",
        f"--comment={root}",
        f"--nodes={machine.hosts.replace('..', '-') or 2}",
        "--parsable",
    ]
    options += ["--exclusive", "--no-requeue", "--dependency=singleton", f"--output={output.replace('{job}', '%j')}"]
    done = _ran("sbatch", *options, "--wrap", script)
    if done.returncode:
        raise SettingsError(
            f"sbatch: got {_said(done)!r}, expected a job id; correct hosts={machine.hosts!r} "
            "or sbatch's variables, such as SBATCH_PARTITION"
        )
    return done.stdout.partition(";")[0].strip()


def find(name: str, root: str) -> ScheduledJob | None:
    """Return this user's newest job with a name for a store, among those that Slurm remembers."""
    done = _ran("squeue", "--me", "--noheader", "--states=all", f"--name={name}", "--format=%i|%T|%r|%k")
    if done.returncode:
        raise WorkerLostError(f"squeue: got {_said(done)!r}, expected a list of jobs; check that slurmctld runs")
    rows = [line.split("|", 3) for line in done.stdout.splitlines()]
    ours = [ScheduledJob(*row[:3]) for row in rows if row[3:] == [root]]
    return max(ours, key=lambda job: int(job.number), default=None)


def cancel(number: str) -> None:
    """Cancel a job: its processes get SIGTERM and save a checkpoint."""
    _ran("scancel", number)


def where(number: str, output: str) -> str:
    """Return the file with a job's output."""
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
