"""A flow whose training is a job of two hosts finds it again, cancels it, and names the host that failed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import job_clusters
import pytest
from drawn_images import as_folders, encoded
from dying_runs import losses, training_processes
from prefect.states import Cancelling
from prefect_servers import PrefectServer, lines_of, prefect_server_in, worker
from small_dataset import CLASS_NAMES, drawn
from waiting import wait_until

from podline.settings import machine as settings
from podline.stages.supervision import processes

# So many that a flow which begins again finds the job, and that no other job ends by itself.
STEPS, ENDLESS = 1200, 1_000_000
CHANGES = ("model.dropout=0.2", "checkpoint_steps=20", "summary_steps=10", "deterministic=true")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


class Stand(NamedTuple):
    """A server with a deployment and a worker, beside a cluster."""

    server: PrefectServer
    deployment: UUID
    root: Path
    cluster: job_clusters.Cluster

    def start(self, steps: int) -> UUID:
        training = {"model": "linear", "steps": steps, "batch_size": 8, "assignments": CHANGES}
        training |= {"learning_rate": 0.0001, "schedule": "constant"}
        given = {"recipe": "images", "source": str(self.root.with_name("images")), "training": training}
        given |= {"machine": {"root": str(self.root)}, "promote": True}
        return self.server.schedule(self.deployment, {"parameters": given})

    def states(self) -> list[str]:
        return [state for _, state in self.cluster.jobs()]

    def cancel(self, run: UUID) -> None:
        with self.server.client() as client:
            client.set_flow_run_state(run, Cancelling())

    def logged(self, run: UUID) -> str:
        with self.server.client() as client:
            return "\n".join(message for _, message in lines_of(client, run))

    def in_training(self, before: set[Path]) -> Path:
        """Wait for the checkpoint of step 40 of a run that is not one of those before; return the run's folder."""
        found: list[Path] = []

        def saved() -> bool:
            every = self.root.glob("runs/*/checkpoints/step-00000040.json")
            found[:] = [file.parents[1] for file in every if file.parents[1] not in before]
            return bool(found)

        wait_until(saved, every=0.02)
        return found[0]

    def ended(self, run: UUID) -> Any:
        wait_until(lambda: self.server.state(run).is_final())
        return self.server.state(run)


@pytest.fixture(params=job_clusters.ALL)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    (tmp_path / "cluster").mkdir()
    as_folders(tmp_path / "images", images())
    with job_clusters.ALL[request.param](tmp_path / "cluster") as cluster, prefect_server_in(tmp_path) as server:
        more = cluster.variables | settings.variables(cluster.machine)
        with worker(server, "one", tmp_path, **more):
            deployment = server.deploy("podline/flows/training.py:training")
            yield Stand(server, deployment, tmp_path / "root", cluster)


def images() -> dict[str, dict[str, bytes]]:
    examples, files = drawn(600, 0, 16), {name: {} for name in CLASS_NAMES}
    for number, (pixels, label) in enumerate(zip(examples["image"], examples["label"], strict=True)):
        files[CLASS_NAMES[label]][f"{number}.png"] = encoded(pixels)
    return files


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def test_a_flow_finds_its_job_again_cancels_it_and_names_the_host_that_failed(stand: Stand) -> None:
    first = stand.start(STEPS)
    wait_until(lambda: stand.states() != [])
    [flow] = processes.marked("PREFECT__FLOW_RUN_ID", str(first))
    kill(flow)
    again = stand.start(STEPS)
    found = rf"train: found job (\S+) of {stand.cluster.scheduler.NAME} for (\S+); its output is in "
    wait_until(lambda: re.search(found, stand.logged(again)), every=1)
    [match] = re.finditer(found, stand.logged(again))
    assert [match[1]] == [number for number, _ in stand.cluster.jobs()]
    # On a machine that is too busy, a host may be lost by itself.
    assert stand.ended(again).is_completed(), stand.logged(again)
    assert stand.states()[-1] == "COMPLETED"
    assert "2 × cpu of 2 hosts" in stand.logged(again)
    folder = stand.root / "runs" / match[2]
    assert (folder / "report.html").exists()

    cancelled = stand.start(ENDLESS)
    other = stand.in_training({folder})
    stand.cancel(cancelled)
    assert stand.ended(cancelled).name == "Cancelled"
    wait_until(lambda: stand.states()[-1] == "CANCELLED" and training_processes(stand.root) == [], 60)

    failing = stand.start(ENDLESS)
    steps = len(losses(other))
    wait_until(lambda: len(losses(other)) > steps)
    [rank] = training_processes(stand.root, stand.cluster.second)
    kill(rank)
    cause = r"trying again in \S+ s \(1 of 3\): worker 1 \([\d.]+:\d+\) ended first: train: killed by SIGKILL"
    wait_until(lambda: re.search(cause, stand.logged(failing)), every=1)
    wait_until(lambda: stand.states()[-2:] == ["FAILED", "RUNNING"])
    stand.cancel(failing)
    assert stand.ended(failing).name == "Cancelled"
