"""A Slurm and a Ray of two nodes each, for tests of jobs."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
import slurm_cluster
from free_ports import free_ports
from ray_cluster import ray_cluster

from podline.settings.machine import Settings
from podline.stages.supervision.ray_jobs import RayJobs
from podline.stages.supervision.slurm import Slurm

# Ray's words in Slurm's.
_STATES = {"STOPPED": "CANCELLED", "SUCCEEDED": "COMPLETED"}


class Cluster(NamedTuple):
    """Two nodes on this machine; ``jobs`` lists (id, state), ``second`` is in the environment of the second host."""

    scheduler: Slurm | RayJobs
    machine: Settings
    variables: dict[str, str]
    jobs: Callable[[], list[tuple[str, str]]]
    second: bytes


@contextlib.contextmanager
def _slurm(folder: Path) -> Iterator[Cluster]:
    if slurm_cluster.missing():
        pytest.skip(f"needs {', '.join(slurm_cluster.missing())}")
    with slurm_cluster.slurm(folder, free_ports(3)) as environment:

        def jobs() -> list[tuple[str, str]]:
            command = ["squeue", "--noheader", "--states=all", "--sort=i", "--format=%i %T"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            return [(number, state) for number, state in map(str.split, done.stdout.splitlines())]

        variables = {"SLURM_CONF": environment["SLURM_CONF"]}
        yield Cluster(Slurm(), Settings(launch="slurm", hosts="2"), variables, jobs, b"SLURM_PROCID=1\0")


@contextlib.contextmanager
def _ray(_folder: Path) -> Iterator[Cluster]:
    with ray_cluster(dashboard=True) as nodes:
        address = f"http://{nodes.webui_url}"
        client = importlib.import_module("ray.job_submission").JobSubmissionClient(address)

        def jobs() -> list[tuple[str, str]]:
            every = sorted((job for job in client.list_jobs() if job.submission_id), key=lambda job: job.start_time)
            return [(job.submission_id, _STATES.get(job.status.value, job.status.value)) for job in every]

        machine = Settings(launch=f"ray:{address}", hosts="2", cluster_port=free_ports(1)[0])
        yield Cluster(RayJobs(address), machine, {}, jobs, b'"index": 1')


# Each takes a new folder, and skips the test where its scheduler is missing.
ALL: dict[str, Callable[[Path], AbstractContextManager[Cluster]]] = {"slurm": _slurm, "ray": _ray}
