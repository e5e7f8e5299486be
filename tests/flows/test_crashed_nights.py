"""A night whose process, worker or machine dies begins again by itself, once, and repeats no finished stage."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prefect_servers import PrefectServer, prefect_server_in, wait_until, worker
from small_flow_stages import STEPS, ran

from podline.data.sources.sample import write_sample
from podline.deployments import automations
from podline.supervision.processes import kill_marked, marked
from podline.tasks.runs.names import TAG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrefectServer]:
    """A server with our automations, which act sooner than usual, and later than a worker tidies up."""
    monkeypatch.setattr(automations, "_PAUSE", timedelta(seconds=40))
    with prefect_server_in(tmp_path) as server:
        with server.client() as client:
            assert [automations.put(client, each) for each in automations.wanted([])] == ["made"] * 2
        yield server


def test_a_night_that_loses_its_process_or_all_its_machine_begins_again_once(
    server: PrefectServer, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    drawn = write_sample(tmp_path / "drawn", train=50, test=20)
    deployment = server.deploy("tests/tpu/night_flow.py:training", tags=[TAG])
    workers = contextlib.ExitStack()

    def start_worker(name: str) -> None:
        workers.enter_context(worker(server, name, tmp_path, PREFECT_FLOWS_HEARTBEAT_FREQUENCY="30"))

    def start(seed: int) -> UUID:
        given = {"recipe": "sample", "source": str(drawn), "machine": {"root": str(root)}}
        given |= {"training": {"steps": 1, "seed": seed}}
        return server.schedule(deployment, {"parameters": given}, datetime.now(UTC))

    def ended_after_a_crash(run: UUID) -> None:
        wait_until(lambda: server.state(run).is_completed(), every=1)
        with server.client() as client:
            names = [state.name for state in client.read_flow_run_states(run)]
            assert client.read_flow_run(run).run_count == 2
        assert {"Crashed", "AwaitingRetry"} <= set(names), names

    with workers:
        start_worker("first")
        hold = root / "hold"
        hold.touch()
        night = start(seed=0)
        wait_until((root / "at-work").exists)
        [flow] = marked("PREFECT__FLOW_RUN_ID", str(night))[:1]
        os.kill(flow, signal.SIGKILL)
        hold.unlink()
        ended_after_a_crash(night)
        assert ran(str(root)) == ["convert", "validate", "train", "train", "evaluate", "report"]

        hold_evaluation = root / "hold-evaluate"
        hold_evaluation.touch()
        night = start(seed=1)
        wait_until((root / "held-evaluate").exists)
        server.kill()
        workers.close()
        kill_marked("PREFECT__FLOW_RUN_ID", str(night))
        hold_evaluation.unlink()
        server.start()
        server.wait()
        start_worker("second")
        ended_after_a_crash(night)
        assert ran(str(root))[6:] == ["train", "evaluate", "evaluate", "report"]
    for weights in root.glob("runs/*/weights"):
        assert json.loads(weights.read_text()) == list(range(STEPS))
