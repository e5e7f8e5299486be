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
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL
from small_flow_stages import STEPS, ran
from standin.cloud import NODE, Cloud, RefusedError
from standin.servers import announcing, serving
from standin.timeline import Attempt, Script, life

from podline.base import errors
from podline.data.sources.sample import write_sample
from podline.flows.stage_on_node import stage_on_node
from podline.flows.training import training
from podline.stages.supervision import processes
from podline.stages.table import STAGES
from podline.tasks.forms import MachineGroup, TrainingForm, TrainingGroup
from podline.tasks.node import DEPLOYMENT
from podline.tpu.clock import SystemClock

PROJECT = Path(__file__).resolve().parent.parent.parent
_MARK = "_STANDIN_MACHINE"
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
def deployed() -> None:
    pull: list[Any] = [{"prefect.deployments.steps.set_working_directory": {"directory": str(PROJECT)}}]
    with get_client(sync_client=True) as client:
        with contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name="tpu", type="process"))
        flow, entrypoint = client.create_flow(stage_on_node), "tests/tpu/night_flow.py:stage_on_node"
        client.create_deployment(flow, "tpu-stage", entrypoint=entrypoint, pull_steps=pull, work_pool_name="tpu")


@contextlib.contextmanager
def switched_by(cloud: Cloud, folder: Path) -> Iterator[Callable[[], object]]:
    """The TPU VM: its worker starts whenever the node gets READY; when it is not any more, all on it is dead.

    Yields:
        What pulls the plug: all that runs on the machine is dead at once, before anybody has heard of it.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PODLINE_"))}
    environment |= {
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{PROJECT / 'tests' / 'support'}",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": PREFECT_API_URL.value() or "",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PODLINE_SETTINGS": str(folder / "podline.toml"),
        _MARK: str(folder),
    }
    words = f"worker start --pool tpu --work-queue {NODE} --name {NODE} --type process --limit 1 --install-policy never"
    over, pull_the_plug = threading.Event(), partial(processes.kill_marked, _MARK, str(folder))

    def is_ready() -> bool:
        with cloud.lock, contextlib.suppress(RefusedError):
            return cloud.get_node(NODE).state.name == "READY"
        return False

    def power() -> None:
        alive = False
        with contextlib.ExitStack() as started, (folder / "worker.log").open("ab") as log:
            while not over.wait(0.2):
                ready = is_ready()
                if ready and not alive:
                    command = [sys.executable, "-m", "prefect", *words.split()]
                    started.enter_context(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
                elif alive and not ready:
                    pull_the_plug()
                alive = ready
            pull_the_plug()

    thread = threading.Thread(target=power)
    thread.start()
    try:
        yield pull_the_plug
    finally:
        over.set()
        thread.join()


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
        api = f'[tpu.api]\nendpoint = "{address}"\ninsecure = true\noperation_poll = 0.2\n'
        api += 'project = "test-project"\nzone = "us-central2-b"\n' + LIMITS
        spec = '[tpu.spec]\naccelerator_type = "v4-8"\nruntime_version = "tpu-vm"\n'
        machine = f'[tpu.machine]\nlock_file = "{tmp_path}/vm/lock"\nmetadata_address = "{metadata}"\n'
        (tmp_path / "vm").mkdir()
        for folder, more, rest in ((tmp_path, 'placement = "node"\n', spec), (tmp_path / "vm", "", machine)):
            text = f'[tpu]\nnode = "{NODE}"\nfolder = "{folder}"\n{more}{api}{rest}'
            (folder / "podline.toml").write_text(text)
        monkeypatch.setenv("PODLINE_SETTINGS", str(tmp_path / "podline.toml"))
        root = tmp_path / "root"
        root.mkdir()
        with switched_by(cloud, tmp_path / "vm") as pull_the_plug:
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
        ours = FlowRunFilter.model_validate({"deployment_id": {"any_": [deployment.id]}})
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
