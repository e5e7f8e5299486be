"""The Prefect server is away for longer than a lease lasts, while a flow's training is on the node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect_servers import POOL, TESTS, PrefectServer, prefect_server_in, worker
from small_flow_stages import ran
from standin.cloud import NODE, Cloud
from standin.servers import announcing, serving
from waiting import wait_until

from podline.base.errors import TpuInUseError
from podline.data.sources.sample import write_sample
from podline.deployments import automations
from podline.settings.tpu_settings import ApiSettings, TpuSettings
from podline.tasks.node import lease
from podline.tasks.server import TAG, TPU_TAG
from podline.tpu.clock import SystemClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
_AWAY_SECONDS = 180.0
# The longest pause between two requests of Prefect's client to a server that is away, and the request.
_CLIENT_SECONDS = 45.0
_BEATS = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}


def deploy(server: PrefectServer) -> UUID:
    """Deploy the flow and the stage on the node, with our automations; return the flow's deployment."""
    night = server.deploy("tests/tpu/night_flow.py:training", tags=[TAG])
    pull: list[dict[str, Any]] = [{"prefect.deployments.steps.set_working_directory": {"directory": str(TESTS.parent)}}]
    with server.client() as client:
        client.create_deployment(
            client.create_flow_from_name("stage-on-node"),
            "tpu-stage",
            entrypoint="tests/tpu/night_flow.py:stage_on_node",
            pull_steps=pull,
            work_pool_name=POOL,
            tags=[TPU_TAG],
        )
        for automation in automations.wanted([]):
            automations.put(client, automation)
    return night


def write_settings(folder: Path, api: str, metadata: str) -> dict[str, str]:
    """Write the settings of the flow's machine and of the node; return their files by the workers' queues."""
    (folder / "vm").mkdir()
    machine = f'[tpu.machine]\nlock_file = "{folder}/vm/lock"\nmetadata_address = "{metadata}"\n'
    files = {"default": folder / "podline.toml", NODE: folder / "vm" / "podline.toml"}
    for file, (head, rest) in zip(files.values(), (('placement = "node"\n', ""), ("", machine)), strict=True):
        file.write_text(
            f'[tpu]\nnode = "{NODE}"\nfolder = "{file.parent}"\n{head}'
            f'[tpu.api]\nendpoint = "{api}"\ninsecure = true\nproject = "test-project"\nzone = "us-central2-b"\n'
            f"[tpu.limits]\npoll = 0.3\ncool_down = 0\n{rest}"
        )
    return {queue: str(file) for queue, file in files.items()}


def test_its_training_goes_on_and_has_the_lease_again(tmp_path: Path) -> None:
    clock, root = SystemClock(), tmp_path / "root"
    root.mkdir()
    hold, notes = root / "hold", root / "at-work"
    hold.touch()
    source = write_sample(tmp_path / "drawn", train=50, test=20)
    given = {"recipe": "sample", "source": str(source), "machine": {"root": str(root)}, "training": {"steps": 1}}
    with serving(Cloud(clock)) as api, announcing(clock) as metadata, prefect_server_in(tmp_path) as server:
        files = write_settings(tmp_path, api, metadata)
        night = server.schedule(deploy(server), {"parameters": given})
        here, there = (
            worker(server, queue, tmp_path, "--work-queue", queue, PODLINE_SETTINGS=file, **_BEATS)
            for queue, file in files.items()
        )
        with here, there:
            wait_until(lambda: notes.exists() and len(notes.read_text().split()) > 2 * 6 + 2)
            server.kill()
            time.sleep(_AWAY_SECONDS)
            server.start()
            server.wait()
            time.sleep(_CLIENT_SECONDS)
            tpu = TpuSettings(node=NODE, api=ApiSettings(project="p", zone="z"))
            with server.client(), pytest.raises(TpuInUseError, match="another run has the node"), lease(tpu):
                pass
            hold.unlink()
            wait_until(lambda: server.state(night).is_final())
        with server.client() as client:
            runs: list[FlowRun] = client.read_flow_runs()
            states = {state.name for run in runs for state in client.read_flow_run_states(run.id)}
    assert sorted((run.state_name, run.run_count) for run in runs) == [("Completed", 1)] * 3
    assert "Crashed" not in states
    assert ran(str(root)) == ["convert", "validate", "train", "evaluate", "report"]
