"""A run on the node as the flow sees it, on a real server; the node's part is played by setting the run's state."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Cancelled, Completed, Crashed, Failed, Running
from small_stages import ACT, ActSpec

from podline import errors
from podline.errors import PodlineError
from podline.flows.stage_on_node import stage_on_node
from podline.progress import Event, silent
from podline.recipes import registry
from podline.settings import Settings
from podline.stages.specs import TrainSpec, ValidateSpec
from podline.supervision.running import perform
from podline.supervision.supervisor import Ending
from podline.tasks.node import node_run
from podline.tasks.node.node_run import DEPLOYMENT, explained, failure, living_runs, run_on_node
from podline.tpu_settings import ApiSettings, Limits, MachineSettings, TpuSettings

API = ApiSettings(project="test-project", zone="us-central2-b", endpoint="127.0.0.1:1", insecure=True)
NODE = "night"


def machine(**limits: Any) -> Settings:
    return Settings(tpu=TpuSettings(node=NODE, api=API, placement="node", limits=Limits(**limits)))


@pytest.fixture
def client(prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    """A client of a server that knows the deployment; all waits are short."""
    monkeypatch.setattr(node_run, "_POLL", 0.05)
    monkeypatch.setattr(node_run, "_CANCEL_SECONDS", 0.5)
    with get_client(sync_client=True) as client:
        with contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name="tpu", type="process"))
        client.create_deployment(client.create_flow(stage_on_node), "tpu-stage", work_pool_name="tpu")
        for run in living_runs(client, NODE):
            client.delete_flow_run(run.id)
        yield client


@contextlib.contextmanager
def played(client: SyncPrefectClient, *acts: Callable[[FlowRun], object]) -> Iterator[list[FlowRun]]:
    """The node's worker: what it does, one act after the other, to the run that appears in its queue."""
    taken: list[FlowRun] = []

    def work() -> None:
        deadline = time.monotonic() + 240
        while not taken and time.monotonic() < deadline:
            taken.extend(living_runs(client, NODE))
            time.sleep(0.05)
        for act in acts:
            act(taken[0])
            time.sleep(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield taken
    finally:
        thread.join()


def state(client: SyncPrefectClient, run: FlowRun) -> str | None:
    return client.read_flow_run(run.id).state_name


def act_on_node(root: Path, told: list[Event] | None = None, ending: Ending | None = None, **limits: Any) -> Any:
    spec = ActSpec(root=str(root), act="work", number=4)
    return run_on_node(spec, ([] if told is None else told).append, machine(**limits), ending or Ending())


def test_a_run_on_the_node_is_followed_to_its_result(client: SyncPrefectClient, tmp_path: Path) -> None:
    spec, told = ActSpec(root=str(tmp_path), act="work", number=4), list[Event]()

    def done_there(run: FlowRun) -> None:
        ACT.run(spec, silent())
        client.set_flow_run_state(run.id, Completed())

    with played(client, lambda run: client.set_flow_run_state(run.id, Running()), done_there) as taken:
        result = act_on_node(tmp_path, told)
    assert (result.number, result.reused) == (4, False)
    assert taken[0].parameters == {"stage": "act", "spec": spec.model_dump(mode="json")}
    assert taken[0].work_queue_name == NODE
    assert [event["event"] for event in told if event["event"] in ("start", "result", "error")] == ["start", "result"]


def test_an_error_there_is_the_same_error_here(client: SyncPrefectClient, tmp_path: Path) -> None:
    error, told = errors.TpuGoneError("the machine is being preempted: now"), list[Event]()
    with (
        played(client, lambda run: client.set_flow_run_state(run.id, Failed(message=failure(error)))),
        pytest.raises(errors.TpuGoneError) as caught,
    ):
        act_on_node(tmp_path, told)
    assert str(caught.value) == str(error)
    assert told[-1] == {"event": "error", "stage": "act", "error": error.to_json()}


def test_what_a_state_without_an_error_of_ours_means(client: SyncPrefectClient, tmp_path: Path) -> None:
    assert isinstance(explained("act", NODE, Crashed(message="gone")), errors.ChildKilledError)
    assert isinstance(explained("act", NODE, Cancelled(message="by someone")), errors.CancelledError)
    bug = explained("act", NODE, Failed(message="Flow run encountered an exception: KeyError: 'x'"))
    assert type(bug) is PodlineError
    assert "KeyError" in str(bug)
    with (
        played(client, lambda run: client.set_flow_run_state(run.id, Completed())),
        pytest.raises(errors.TpuSetupError, match="must use one store"),
    ):
        act_on_node(tmp_path)


def test_a_run_that_no_worker_takes_up_is_given_up_and_what_an_earlier_flow_left_is_ended_first(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    deployment = client.read_deployment_by_name(DEPLOYMENT)
    left = client.create_flow_run_from_deployment(deployment.id, work_queue_name=NODE)
    told: list[Event] = []
    with pytest.raises(errors.HangError, match="no worker started the run act on night"):
        act_on_node(tmp_path, told, worker=0.1)
    assert state(client, left) == "Cancelled"
    assert any(left.name in event.get("message", "") for event in told)
    given_up = max(client.read_flow_runs(), key=lambda run: run.created or run.updated)
    assert state(client, given_up) == "Crashed"
    client.delete_deployment(deployment.id)
    with pytest.raises(errors.TpuSetupError, match="make it with `podline deploy`"):
        act_on_node(tmp_path)


@pytest.mark.parametrize(
    ("at_once", "worker_ends_it", "last"),
    [(True, False, "Crashed"), (False, True, "Cancelled"), (False, False, "Crashed")],
)
def test_a_verdict_ends_the_run_there_whatever_its_worker_does(
    client: SyncPrefectClient, tmp_path: Path, at_once: bool, worker_ends_it: bool, last: str
) -> None:
    ending = Ending()
    acts: list[Callable[[FlowRun], object]] = [
        lambda run: client.set_flow_run_state(run.id, Running()),
        lambda run: ending.ask(errors.TpuUnhealthyError("the node is TIMEOUT"), at_once=at_once),
    ]
    if worker_ends_it:
        acts.append(lambda run: client.set_flow_run_state(run.id, Cancelled(), force=True))
    with played(client, *acts) as taken, pytest.raises(errors.TpuUnhealthyError, match="the node is TIMEOUT"):
        act_on_node(tmp_path, ending=ending)
    assert state(client, taken[0]) == last


def test_a_worker_without_the_settings_of_a_tpu_vm_is_refused(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NODE": NODE, "API_PROJECT": "p", "API_ZONE": "us-central2-b"}.items():
        monkeypatch.setenv(f"PODLINE_TPU_{name}", value)
    spec = ValidateSpec(root=str(tmp_path), dataset="sample", fingerprint="0", manifest_sha256="0")
    last = stage_on_node("validate", spec.model_dump(mode="json"), return_state=True)
    assert last.message is not None
    assert last.message.startswith("TpuSetupError: this worker's settings have no table [tpu.machine]")
    last = stage_on_node("trian", {}, return_state=True)
    assert "did you mean 'train'?" in str(last.message)


def test_a_placement_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"placement='node' vs a table \[tpu.machine\]"):
        TpuSettings(node=NODE, api=API, placement="node", machine=MachineSettings())
    spec = TrainSpec(root=str(tmp_path), recipe=registry.get("sample"), fingerprint="0", strategy="tpu")
    with pytest.raises(errors.TpuSetupError, match="this needs a flow on a Prefect server"):
        perform(spec, lambda _event: None, machine())
