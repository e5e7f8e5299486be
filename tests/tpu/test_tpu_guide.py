"""The set-up guide: its commands are read out of docs/tpu.md and run, in its order, with its settings file.

Only ``gcloud``'s are left out. A stand-in answers for Google, and a real Prefect server is the guide's.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.testing.cli import CycloptsCliRunner
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import Attempt, Script

from podline import cli, settings
from podline.tpu.clock import SystemClock

PROJECT = Path(__file__).resolve().parent.parent.parent
GUIDE = (PROJECT / "docs" / "tpu.md").read_text(encoding="utf-8")
# It runs until it is ended; this is what it says when it is up.
WORKER, UP = "prefect worker start", "started!"


def blocks(language: str) -> list[str]:
    """The blocks of code in the guide."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The guide's commands, in its order, without Google's own."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if "gcloud " not in line]


def test_the_guide_knows_only_commands_that_are_run_here() -> None:
    assert {line.split()[0] for line in commands()} == {"podline", "prefect"}
    assert len(blocks("toml")) == 1


@pytest.fixture
def cloud(prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """The stand-in, for someone who follows the guide in the project's folder; Prefect's server is as new."""
    (tmp_path / "podline.toml").write_text(blocks("toml")[0])
    _forget()
    cloud = Cloud(SystemClock(), Script(life=None, creates=(Attempt(0.5),)))
    with serving(cloud) as address:
        monkeypatch.chdir(PROJECT)
        monkeypatch.setenv("PYTHONPATH", str(PROJECT))
        monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value() or "")
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
        monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
        monkeypatch.setenv("PODLINE_TPU_API_ENDPOINT", address)
        monkeypatch.setenv("PODLINE_TPU_API_INSECURE", "true")
        monkeypatch.setenv("PODLINE_TPU_API_OPERATION_POLL", "0.2")
        monkeypatch.setenv("PODLINE_TPU_LIMITS_POLL", "0.3")
        monkeypatch.setenv("PODLINE_TPU_FOLDER", str(tmp_path))
        yield cloud
    _forget()


def _forget() -> None:
    """The other tests of this server have neither these deployments nor their schedules."""
    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
        for name in ("cpu", "tpu"):
            with contextlib.suppress(ObjectNotFound):
                client.delete_work_pool(name)
        with contextlib.suppress(ObjectNotFound):
            client.delete_global_concurrency_limit_by_name("tpu")


def run(command: str) -> str:
    """What a command printed; it must end well, or, if it is a worker, come up."""
    program, *words = shlex.split(command)
    if command.startswith(WORKER):
        return _came_up([sys.executable, "-m", program, *words])
    # In this process: importing Prefect for each of its commands takes longer than all else here.
    if program == "prefect":
        done = CycloptsCliRunner().invoke(words)
        assert done.exit_code == 0, f"{command}\n{done.output}"
        return done.stdout
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0, f"{command}\n{said.getvalue()}"
    return said.getvalue()


def _came_up(line: list[str]) -> str:
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as worker:
        assert worker.stdout is not None
        said = []
        try:
            for text in worker.stdout:
                said.append(text)
                if UP in text:
                    return "".join(said)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
    raise AssertionError("".join(said))


@pytest.mark.slow
def test_whoever_follows_the_guide_has_a_node_and_a_run(cloud: Cloud) -> None:
    said: dict[str, list[str]] = {}
    for command in commands():
        said.setdefault(command, []).append(run(command))
    before, after = said["podline tpu status"]
    assert "there is none" in before
    assert f"{NODE}: READY (v4-8, tpu-vm-tf-2.20.0-pjrt)" in after

    spec, made = settings.load().tpu, cloud.get_node(NODE)
    assert spec is not None
    assert spec.spec is not None
    assert made.metadata["startup-script"] == (PROJECT / "deployments" / "tpu-startup.sh").read_text(encoding="utf-8")
    assert made.metadata["podline-install"] == spec.spec.install
    assert made.metadata["podline-prefect-secret"] == "prefect"
    (patrolled,) = said["podline tpu patrol"]
    assert f"node {NODE}: READY, HEALTHY" in patrolled
    with get_client(sync_client=True) as client:
        deployments = {deployment.name: deployment for deployment in client.read_deployments()}
        assert {"cifar-manual", "tpu-stage", "tpu-patrol"} <= set(deployments)
        assert deployments["tpu-stage"].work_pool_name == "tpu"
        assert deployments["tpu-patrol"].schedules
        runs = [run for run in client.read_flow_runs() if run.deployment_id == deployments["cifar-manual"].id]
        assert [run.parameters for run in runs] == [{"parameters": {"recipe": "sample"}}]
    gc.collect()
