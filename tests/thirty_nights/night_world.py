"""The world of the nights: a real server and worker with what ``podline deploy`` makes, a bucket, a disk, raw data."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from fault_proxy import FaultProxy, fault_proxy
from gcs_emulator import emulator, make_bucket
from memory_limits import memory_limit
from night_plan import Fault
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.schedules import CronSchedule
from prefect_servers import TESTS, PrefectServer, worker

from podline.data.sources.sample import write_sample
from podline.deployments import automations
from podline.deployments.deploy import deployed
from podline.store.buckets import forget_clients
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.supervision.processes import kill_marked

_HERE = Path(__file__).resolve().parent
PATHS = os.pathsep.join(map(str, (_HERE.parents[1], _HERE.parent / "support", _HERE)))
_DISK_BYTES = 256_000_000
_ROOT = "gs://podline-nights/store"
# Small, bitwise the same each time, with a checkpoint every third of the way.
PARAMETERS: dict[str, Any] = {
    "recipe": "sample",
    "training": {"steps": 120, "batch_size": 32, "assignments": ["deterministic=true", "checkpoint_steps=40"]},
}
_IMAGES = {"train": 1000, "test": 300}


def draw(folder: Path, data: int) -> None:
    """Puts a version of the raw data where the night looks for them."""
    shutil.rmtree(folder, ignore_errors=True)
    write_sample(folder, **_IMAGES, seed=data)


class World(contextlib.ExitStack):
    """All that a night needs; it is gone when the body ends.

    Attributes:
        folder: for logs and all else; where plan, stages and driver meet is ``meet`` in it.
        server: Prefect's.
        proxy: before the bucket.
        limit_memory: leaves a process hardly any memory.
    """

    server: PrefectServer
    proxy: FaultProxy
    limit_memory: Callable[[int], None]

    def __init__(self, folder: Path, *, quick: bool) -> None:
        super().__init__()
        self.folder, self.meet, self.disk, self.source = folder, folder / "meet", folder / "disk", folder / "raw"
        self._quick, self._workers = quick, 0

    def __enter__(self) -> World:
        with contextlib.ExitStack() as undone:
            undone.push(super().__exit__)
            self.meet.mkdir(parents=True)
            self.disk.mkdir()
            url = self.enter_context(emulator())
            make_bucket(url, "podline-nights")
            self.proxy = self.enter_context(fault_proxy(url))
            # The driver looks into the bucket past the proxy.
            os.environ |= {"STORAGE_EMULATOR_HOST": url, "PODLINE_STORE_CACHE": str(self.folder / "cache")}
            self.callback(forget_clients)
            self.server = PrefectServer(self.folder)
            self.callback(self.server.kill)
            self.server.wait()
            with self.server.client():
                assert list(deployed(TESTS.parent))
            self._make_ready()
            self.callback(self._end_runs)
            self.start_worker()
            undone.pop_all()
        return self

    @property
    def store(self) -> Store:
        """The store, past the proxy."""
        return open_store(_ROOT)

    def _make_ready(self) -> None:
        """The deployment of ``prefect.yaml`` runs the watched flow on our data; its own nights are far from now."""
        given = PARAMETERS | {"source": str(self.source), "machine": {"root": _ROOT}}
        with self.server.client() as client:
            deployment = client.read_deployment_by_name("training/cifar-nightly")
            self.deployment = deployment.id
            client.update_deployment(
                deployment.id,
                DeploymentUpdate(
                    entrypoint=f"{_HERE.relative_to(TESTS.parent)}/watched_flow.py:training",
                    parameters={"parameters": given},
                ),
            )
            far = (datetime.now(UTC) + timedelta(hours=12)).hour
            [schedule] = deployment.schedules
            cron = CronSchedule(cron=f"15 {far} * * *", timezone="UTC")
            client.update_deployment_schedule(deployment.id, schedule.id, active=True, schedule=cron)
            if self._quick:
                # Still longer than a worker takes to tidy up.
                automations._PAUSE = timedelta(seconds=40)
                [automations.put(client, each) for each in automations.wanted([])]

    def start_worker(self) -> None:
        """Starts a worker, as the machine's service manager would when one is gone."""
        self._workers += 1
        environment = {
            "PYTHONPATH": PATHS,
            "NIGHT_FOLDER": str(self.meet),
            "NIGHT_QUICK": "1" if self._quick else "",
            "STORAGE_EMULATOR_HOST": self.proxy.url,
            "PODLINE_STORE_CACHE": str(self.disk / "cache"),
            "PODLINE_STORE_DEADLINE": "3",
            "PODLINE_STORE_PATIENCE": "3",
            "PODLINE_GRACE": "5",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
        }
        name = f"worker-{self._workers}"
        self._worker = self.enter_context(worker(self.server, name, self.folder, pool="cpu", **environment))

    def kill_worker(self) -> None:
        """Ends the worker, and nothing but the worker, by SIGKILL."""
        self._worker.kill()
        self._worker.wait()

    def night(self, days_ago: int) -> UUID:
        """A run that the schedule makes, which was due so many days ago; it begins at once."""
        start = datetime.now(UTC) - timedelta(days=days_ago)
        body = {"start_time": f"{start}", "end_time": f"{start + timedelta(days=1)}", "max_runs": 1}
        before = {run.id for run in self._runs()}
        with self.server.client() as client:
            client._client.post(f"/deployments/{self.deployment}/schedule", json=body).raise_for_status()
        [made] = [run for run in self._runs() if run.id not in before]
        assert made.auto_scheduled
        return made.id

    def _runs(self) -> list[FlowRun]:
        wanted = FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=[self.deployment]),
            expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
        )
        with self.server.client() as client:
            return client.read_flow_runs(flow_run_filter=wanted)

    def read(self, run: UUID) -> FlowRun:
        """A flow run as it is now."""
        with self.server.client() as client:
            return client.read_flow_run(run)

    def states(self, run: UUID) -> list[State]:
        """The states that a flow run has had."""
        with self.server.client() as client:
            return sorted(client.read_flow_run_states(run), key=lambda state: state.timestamp)

    def artifacts(self, run: UUID) -> dict[str, Any]:
        """What a run has put into Prefect's UI, by key."""
        with self.server.client() as client:
            ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
            return {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=ours)}

    def prepare(self, faults: Collection[Fault]) -> None:
        """Makes what some faults need; says so and ends the process where this user may not."""
        if Fault.DISK in faults:
            self._mount()
        if Fault.MEMORY in faults:
            self.limit_memory = self.enter_context(memory_limit())
            # A process that is still in the group keeps it.
            self.callback(self._end_runs)

    def _mount(self) -> None:
        """Gives the runs' machine a small disk, for the cache and the scratch folder of its store."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=777", "none", str(self.disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"a full disk is in the plan, and this user cannot mount a small one: {done.stderr.strip()}")
        self.callback(subprocess.run, ["umount", "--lazy", str(self.disk)], check=True)

    def _end_runs(self) -> None:
        """They outlive their worker for a while."""
        kill_marked("NIGHT_FOLDER", str(self.meet))

    def fill_disk(self) -> None:
        """Nothing can be written to the disk any more."""
        with contextlib.suppress(OSError), (self.disk / "ballast").open("wb", buffering=0) as file:
            while file.write(bytes(1_000_000)):
                pass

    def go_on(self) -> None:
        """Lets the stage that waits for its fault go on."""
        (self.meet / "go").touch()

    def mend(self) -> None:
        """Whatever was full or failing is well again."""
        (self.disk / "ballast").unlink(missing_ok=True)
        self.proxy.share = 0.0
