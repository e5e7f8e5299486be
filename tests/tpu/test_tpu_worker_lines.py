"""Flow runs of real workers on a server of their own: killed workers, two runs at once, a server that is restarted."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from nights import TESTS, prepared, settings_lines
from prefect.states import AwaitingRetry
from prefect_servers import PrefectServer, server_with_limit, wait_until, worker
from small_flow_stages import STEPS, lives
from standin.cloud import Cloud
from standin.servers import serving

from podline.supervision.processes import parent
from podline.tpu.clock import SystemClock

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    with server_with_limit(tmp_path_factory.mktemp("server")) as made:
        yield made


class Run:
    """A flow run with a store of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.root = folder / name / "root"
        (folder / name).mkdir()
        self.parameters = prepared(self.root, folder / name / "drawn")
        self.id: UUID

    def trigger(self, server: PrefectServer, deployment: UUID, when: datetime) -> None:
        given = {"parameters": self.parameters.model_dump(mode="json")}
        self.id = server.schedule(deployment, given, when)

    @property
    def lives(self) -> list[tuple[float, float]]:
        return lives(self.root)

    @property
    def child(self) -> int:
        """The process that trains."""
        return int((self.root / "at-work").read_text().splitlines()[-1].split()[0])

    @property
    def told(self) -> list[Any]:
        return [
            (entry["event"], entry["what"])
            for file in self.root.glob("runs/*/tpu.json")
            for entry in _read(file)["entries"]
        ]

    def trained_whole(self) -> bool:
        (weights,) = self.root.glob("runs/*/weights")
        return _read(weights) == list(range(STEPS))


def _read(file: Path) -> Any:
    return json.loads(file.read_text())


def test_a_killed_worker_hands_the_tpu_on_and_never_are_there_two_users(server: PrefectServer, tmp_path: Path) -> None:
    deployment = server.deploy("tests/tpu/night_flow.py:training")
    runs = [Run(tmp_path, name) for name in ("one", "two", "three")]
    with serving(Cloud(SystemClock())) as address, contextlib.ExitStack() as stack:
        limits = ["poll = 0.5", "cool_down = 0.5"]
        (tmp_path / "podline.toml").write_text("\n".join(settings_lines(tmp_path, address, *limits)))
        for name in ("a", "b", "c"):
            settings = str(tmp_path / "podline.toml")
            stack.enter_context(worker(server, name, tmp_path, "--limit", "1", PODLINE_SETTINGS=settings))
        at_once = datetime.now(UTC) + timedelta(seconds=1)
        for run in runs[:2]:
            (run.root / "hold").touch()
            run.trigger(server, deployment, at_once)

        # One trains, the other waits; the one's worker is killed, and its flow's process is an orphan.
        wait_until(lambda: runs[0].lives or runs[1].lives)
        first, second = sorted(runs[:2], key=lambda run: not run.lives)
        wait_until(lambda: ("wait", "waits for its turn: another flow run has the TPU") in second.told)
        os.kill(parent(parent(first.child)), signal.SIGKILL)
        wait_until(lambda: server.state(first.id).is_final())
        ended = server.state(first.id)
        assert ended.is_failed(), ended
        assert "is gone, so nobody could cancel it any more" in ended.message
        wait_until(lambda: second.lives)

        # The other's worker is killed, and with it the flow's process: nobody gives back the lease.
        flow = parent(second.child)
        third = runs[2]
        third.trigger(server, deployment, datetime.now(UTC))
        wait_until(lambda: third.told)
        os.kill(parent(flow), signal.SIGKILL)
        os.kill(flow, signal.SIGKILL)
        assert (server.users_of_tpu, third.lives) == (1, [])
        assert server.let_leases_end(longest=60) == 1
        wait_until(lambda: server.state(third.id).is_completed())

        # What the button Retry does: another worker goes on from the checkpoint.
        (first.root / "hold").unlink()
        with server.client() as client:
            client.set_flow_run_state(first.id, AwaitingRetry(scheduled_time=datetime.now(UTC)), force=True)
        wait_until(lambda: server.state(first.id).is_completed())

    assert third.trained_whole()
    assert first.trained_whole()
    assert (len(first.lives), len(second.lives), len(third.lives)) == (2, 1, 1)
    users = sorted(life for run in runs for life in run.lives)
    assert all(left <= came for (_, left), (came, _) in itertools.pairwise(users)), users
    assert server.users_of_tpu == 0


def test_a_server_that_is_restarted_in_the_middle_costs_nothing(server: PrefectServer, tmp_path: Path) -> None:
    run, log = Run(tmp_path, "one"), tmp_path / "flow.log"
    (run.root / "hold").touch()
    with serving(Cloud(SystemClock())) as address:
        (tmp_path / "podline.toml").write_text("\n".join(settings_lines(tmp_path, address)))
        command = [sys.executable, str(TESTS / "tpu" / "night_flow.py"), run.parameters.model_dump_json()]
        environment = {**server.environment, "PODLINE_SETTINGS": str(tmp_path / "podline.toml")}
        with log.open("w") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as flow:
            wait_until(lambda: run.lives)
            server.kill()
            wait_until(lambda: "the lease on the TPU is not renewed, which is tried again" in log.read_text())
            (run.root / "hold").unlink()
            # The training ends while there is no server.
            wait_until(lambda: list(run.root.glob("runs/*/weights")))
            server.start()
            assert flow.wait(120) == 0, log.read_text()
    assert run.trained_whole()
    assert [event for event, _what in run.told] == ["begin", "go", "leave"]
    assert len(run.lives) == 1
    assert server.users_of_tpu == 0
    with server.client() as client:
        newest = max(client.read_flow_runs(), key=lambda flow_run: flow_run.created)
    assert newest.state.is_completed()
