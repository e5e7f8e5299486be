"""A Prefect server that a test may kill and start again, and workers of it; both are real and in processes."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from free_ports import free_ports
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter, LogFilter
from prefect.client.schemas.objects import Artifact, TaskRun
from prefect.client.schemas.sorting import LogSort
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Scheduled

TESTS = Path(__file__).resolve().parent.parent
POOL = "tpu"
SECRET = "night:shift-7421"  # noqa: S105 (of this test's own server)


def tasks_of(client: SyncPrefectClient, run: UUID) -> list[TaskRun]:
    return client.read_task_runs(flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run]}}))


def artifacts_of(client: SyncPrefectClient, run: UUID) -> dict[str | None, Artifact]:
    ours = ArtifactFilter.model_validate({"flow_run_id": {"any_": [run]}})
    return {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=ours)}


def lines_of(client: SyncPrefectClient, run: UUID) -> list[tuple[int, str]]:
    """The levels and messages of a flow run's log, in order."""
    ours = LogFilter.model_validate({"flow_run_id": {"any_": [run]}})
    return [(line.level, line.message) for line in client.read_logs(ours, sort=LogSort.TIMESTAMP_ASC)]


def clear(client: SyncPrefectClient) -> None:
    """Delete what was deployed to a server, so that no other test hears of it."""
    for automation in client.read_automations():
        client.delete_automation(automation.id)
    for deployment in client.read_deployments():
        client.delete_deployment(deployment.id)
    for variable in client.read_variables():
        client.delete_variable_by_name(variable.name)
    for pool in client.read_work_pools():
        client.delete_work_pool(pool.name)
    for limit in client.read_global_concurrency_limits():
        client.delete_global_concurrency_limit_by_name(limit.name)


class PrefectServer:
    """A server whose database and leases are in a folder, so that it goes on where it was when it is started again."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.home = folder / "prefect"
        self.home.mkdir()
        [self._port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/api"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT")},
            "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS / 'support'}",
            "PREFECT_HOME": str(self.home),
            "PREFECT_API_URL": self.url,
            "PREFECT_API_AUTH_STRING": SECRET,
            "PREFECT_SERVER_API_AUTH_STRING": SECRET,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "podline.deployments.event_order",
            "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "1",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            **more,
        }
        self.start()

    def start(self) -> None:
        with socket.create_server(("127.0.0.1", self._port)) as listening, self.log.open("ab") as output:
            server = ("podline.deployments.server", "--until-input-ends")
            command = [sys.executable, "-m", *server, "--listen-fd", str(listening.fileno())]
            self._process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(listening.fileno(),),
                start_new_session=True,
            )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def wait(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        connection.request("GET", "/api/health")
        assert connection.getresponse().status == 200
        connection.close()

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @contextlib.contextmanager
    def client(self) -> Iterator[SyncPrefectClient]:
        ours: dict[Any, str] = {PREFECT_API_URL: self.url, PREFECT_API_AUTH_STRING: SECRET}
        with temporary_settings(ours), get_client(sync_client=True) as client:
            yield client

    def deploy(self, entrypoint: str, tags: list[str] | None = None) -> UUID:
        given: dict[str, Any] = {"work_pool_name": POOL, "work_queue_name": "default", "tags": tags}
        pull = {"prefect.deployments.steps.set_working_directory": {"directory": str(TESTS.parent)}}
        with self.client() as client:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
            flow = client.create_flow_from_name("training")
            return client.create_deployment(flow, "night", entrypoint=entrypoint, pull_steps=[pull], **given)

    def schedule(self, deployment: UUID, parameters: dict[str, Any]) -> UUID:
        with self.client() as client:
            due = Scheduled(scheduled_time=datetime.now(UTC))
            return client.create_flow_run_from_deployment(deployment, parameters=parameters, state=due).id

    def state(self, flow_run: UUID) -> Any:
        with self.client() as client:
            return client.read_flow_run(flow_run).state


@contextlib.contextmanager
def prefect_server_in(folder: Path, **more: str) -> Iterator[PrefectServer]:
    """Yield a server that answers, with its home in a folder and further variables."""
    server = PrefectServer(folder, **more)
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def worker(
    server: PrefectServer, name: str, folder: Path, *options: str, **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a pool; whatever is left of its process group ends with the body."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--name", name, *options]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**server.environment, **more}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
