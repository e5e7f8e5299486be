"""Ray's scheduler, used through the Jobs API of the head node; :mod:`podline.stages.supervision.slurm` is for Slurm.

A job runs :mod:`podline.stages.supervision.ray_hosts` once on the head node, whose ``python`` must have Podline.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from typing import Any

from podline.base.errors import WorkerLostError, one_line
from podline.settings.machine import Settings, variables
from podline.stages.supervision.ray_hosts import library
from podline.stages.supervision.slurm import CANCELLED, COMPLETED, ScheduledJob

_STATES = {"STOPPED": CANCELLED, "SUCCEEDED": COMPLETED}


class RayJobs:
    """The jobs of a Ray cluster.

    Args:
        address: the address of Ray's dashboard, ``http://HEAD:8265``.
    """

    NAME = "Ray"
    PROGRAM = ("python", "-P", "-m", "podline.stages.supervision.ray_hosts")

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def submit(self, name: str, root: str, command: Sequence[str], machine: Settings, _output: str) -> str:
        """Submit a command that runs on the head node; return the job's id. Ray keeps the command's output."""
        number = f"{name}-{secrets.token_hex(4)}"  # Ray refuses the id of an earlier job
        self._asked(
            "submit_job",
            submission_id=number,
            entrypoint=shlex.join(command).replace("{job}", number),
            metadata={"run": name, "root": root},
            # The seconds from SIGTERM to SIGKILL; Ray's default is 3.
            runtime_env={"env_vars": variables(machine) | {"RAY_JOB_STOP_WAIT_TIME_S": f"{machine.grace + 5:.0f}"}},
        )
        return number

    def find(self, name: str, root: str) -> ScheduledJob | None:
        """Return the newest job ``name`` for the store ``root`` since the head node's start, or None."""
        ours = [job for job in self._asked("list_jobs") if job.metadata == {"run": name, "root": root}]
        newest = max(ours, key=lambda job: job.start_time, default=None)
        if newest is None:
            return None
        state, last_line = str(newest.status), (newest.message or "").strip().rpartition("\n")[2]
        return ScheduledJob(newest.submission_id, _STATES.get(state, state), last_line)

    def cancel(self, number: str) -> None:
        """Cancel a job."""
        self._asked("stop_job", number)

    def where(self, number: str, _output: str) -> str:
        """Return the address of the job's page in Ray's dashboard."""
        return f"{self._address}/#/jobs/{number}"

    def _asked(self, method: str, *arguments: Any, **more: Any) -> Any:
        jobs = library(f"launch=ray:{self._address}", "ray.job_submission")
        try:
            return getattr(jobs.JobSubmissionClient(self._address), method)(*arguments, **more)
        except Exception as error:  # errors of requests and of Ray, and RuntimeError
            raise WorkerLostError(
                f"launch=ray:{self._address}: got {one_line(error)!r}, expected Ray's Jobs API; check that the head "
                "node runs, or correct the address"
            ) from None
