"""The flow here, its training on the node: a real server, a worker that lives and dies with the stand-in's node."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from small_flow_stages import STEPS, ran
from standin.cloud import NODE, Cloud
from standin.machine import switched_by, worker_command
from standin.servers import announcing, serving
from standin.timeline import Attempt, Script, life

from podline import errors
from podline.data.sources.sample import write_sample
from podline.flows.training import training
from podline.stages.table import STAGES
from podline.tasks.node.node_run import DEPLOYMENT
from podline.tasks.parameters import MachineGroup, TrainingForm, TrainingGroup
from podline.tpu.clock import SystemClock

PROJECT = Path(__file__).resolve().parent.parent.parent
LIMITS = """
[tpu.limits]
poll = 0.3
cool_down = 0
worker = 60
restart = { attempts = 2, pause = 0, patience = 60 }
recreate = { attempts = 2, pause = 0, patience = 60 }
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture
def deployed(tmp_path: Path) -> None:
    """The pool and the deployment."""
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name="tpu", type="process"))
    environment = {**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value() or "", "PYTHONPATH": str(PROJECT)}
    environment["PREFECT_HOME"] = str(PREFECT_HOME.value())
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--name", "tpu-stage"]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def night(
    deployed: None, small_stages: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TrainingForm]:
    """A flow's parameters; its settings say that models run on a node, which there is not yet."""
    monkeypatch.setitem(STAGES, "train", replace(STAGES["train"], run_at="small_flow_stages:train_in_steps"))
    monkeypatch.setattr(errors.TpuGoneError, "retry_delays", (0.1, 0.1))
    write_sample(tmp_path / "drawn", train=50, test=20)
    clock = SystemClock()
    cloud = Cloud(clock, Script(life=None, creates=(Attempt(0.5),), deletes=(Attempt(0.2),)))
    with serving(cloud) as address, announcing(clock) as metadata:
        api = f'endpoint = "{address}"\ninsecure = true\noperation_poll = 0.2\n'
        api += 'project = "test-project"\nzone = "us-central2-b"\n'
        ours = f'[tpu]\nnode = "{NODE}"\nfolder = "{tmp_path}"\nplacement = "node"\n[tpu.api]\n{api}'
        ours += '[tpu.spec]\naccelerator_type = "v4-8"\nruntime_version = "tpu-vm"\n' + LIMITS
        (tmp_path / "podline.toml").write_text(ours)
        (tmp_path / "vm").mkdir()
        theirs = f'[tpu]\nnode = "{NODE}"\nfolder = "{tmp_path}/vm"\n[tpu.api]\n{api}'
        theirs += f'[tpu.machine]\nlock_file = "{tmp_path}/vm/lock"\nmetadata_address = "{metadata}"\n'
        (tmp_path / "vm" / "podline.toml").write_text(theirs + LIMITS)
        monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
        root = tmp_path / "root"
        root.mkdir()
        settings = tmp_path / "vm" / "podline.toml"
        with switched_by(cloud, tmp_path / "vm", worker_command(), settings) as pull_the_plug:
            preempting = (cloud, root, pull_the_plug)
            threading.Thread(target=_preempt_at_checkpoint, args=preempting, daemon=True).start()
            yield TrainingForm(
                recipe="sample",
                source=str(tmp_path / "drawn"),
                training=TrainingGroup(steps=1),
                machine=MachineGroup(root=str(root)),
            )


def _preempt_at_checkpoint(cloud: Cloud, root: Path, pull_the_plug: Callable[[], object]) -> None:
    """Once, as soon as the first checkpoint is there; the machine is gone before anything on it could hear why."""
    while not list(root.glob("runs/*/checkpoint")):
        time.sleep(0.1)
    pull_the_plug()
    cloud.add(NODE, life("PREEMPTED"))


def events(root: Path) -> list[str]:
    """What happened to the node until the training was done."""
    (file,) = root.glob("runs/*/tpu.json")
    told = [entry["event"] for entry in json.loads(file.read_text())["entries"] if entry["event"] != "wait"]
    return told[: [*told[1:], "begin"].index("begin") + 1]


def node_runs(since: datetime) -> list[FlowRun]:
    """The runs of the deployment on the node since a time, the oldest first."""
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
        ours = FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]))
        runs = [run for run in client.read_flow_runs(flow_run_filter=ours) if run.created and run.created >= since]
    return sorted(runs, key=lambda run: run.created or since)


def test_a_node_is_made_trained_on_lost_and_made_again(night: TrainingForm) -> None:
    began = datetime.now(UTC)
    training(night)
    root = Path(night.machine.root)
    (weights,) = root.glob("runs/*/weights")
    assert json.loads(weights.read_text()) == list(range(STEPS))
    assert ran(night.machine.root) == ["convert", "validate", "train", "train", "evaluate", "report"]
    here_and_there = ["go", "go"]
    assert events(root) == ["begin", "recreate", *here_and_there, "leave", "replace", *here_and_there, "leave", "leave"]
    assert [run.state_name for run in node_runs(began)] == ["Crashed", "Completed", "Completed"]
