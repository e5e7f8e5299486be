"""One flow at a time has a node, and a run there ends as its stage would here; the node's worker is played."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import ArtifactFilter
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed, Crashed, Failed, Running
from small_stages import ACT, ActSpec
from waiting import wait_until

from podline.base import errors
from podline.base.errors import PodlineError, TpuInUseError
from podline.base.progress import Event, silent
from podline.flows.stage_on_node import stage_on_node
from podline.recipes import registry
from podline.settings.machine import Settings
from podline.settings.tpu_settings import ApiSettings, Limits, MachineSettings, TpuSettings
from podline.stages.specs import TrainSpec, ValidateSpec
from podline.stages.supervision.running import perform
from podline.stages.supervision.supervisor import Ending
from podline.store.opening import open_store
from podline.tasks import node
from podline.tasks.node import DEPLOYMENT, failure, limit_of, living_runs, run_on_node
from podline.tasks.stages import attempt
from podline.tpu.tpu_log import TpuLog

API = ApiSettings(project="test-project", zone="us-central2-b", endpoint="127.0.0.1:1", insecure=True)
NODE = "night"
TPU = TpuSettings(node=NODE, api=API)
AWAY = {PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}


def machine(**limits: Any) -> Settings:
    return Settings(tpu=TpuSettings(node=NODE, api=API, placement="node", limits=Limits(**limits)))


@pytest.fixture
def client(prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    """A client of a server that knows the deployment; all waits are short."""
    monkeypatch.setattr(node, "_POLL", 0.05)
    monkeypatch.setattr(node, "_CANCEL_SECONDS", 0.5)
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


GONE = errors.TpuGoneError("the machine is being preempted: now")


@pytest.mark.parametrize(
    ("last", "kind", "message"),
    [
        (Failed(message=failure(GONE)), errors.TpuGoneError, f"^{GONE}$"),
        (Failed(message="Flow run encountered an exception: KeyError: 'x'"), PodlineError, "KeyError: 'x'"),
        (Crashed(message="gone"), errors.ChildKilledError, "act: its run on node night crashed: gone"),
        (Cancelled(message="by hand"), errors.CancelledError, "act: its run on node night was cancelled: by hand"),
        (Completed(), errors.TpuSetupError, "must use one store"),
    ],
)
def test_the_end_of_a_run_there_is_an_error_here(
    client: SyncPrefectClient, tmp_path: Path, last: State[Any], kind: type[PodlineError], message: str
) -> None:
    told: list[Event] = []
    with (
        played(client, lambda run: client.set_flow_run_state(run.id, last, force=True)),
        pytest.raises(kind, match=message) as caught,
    ):
        act_on_node(tmp_path, told)
    assert type(caught.value) is kind
    assert told[-1] == {"event": "error", "stage": "act", "error": caught.value.to_json()}


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
    with pytest.raises(ValueError, match=r"placement='node' and a table \[tpu.machine\]"):
        TpuSettings(node=NODE, api=API, placement="node", machine=MachineSettings())
    # A command's process has no Prefect server that a worker knows.
    spec = TrainSpec(root=str(tmp_path), recipe=registry.get("sample"), fingerprint="0", strategy="tpu")
    with pytest.raises(errors.TpuSetupError, match="needs a flow run on a Prefect server"):
        perform(spec, lambda _event: None, machine())


def users(client: SyncPrefectClient) -> int:
    limit = client.read_global_concurrency_limit_by_name(limit_of(NODE))
    assert limit.limit == 1
    return limit.active_slots


@flow
def waiting(root: str, turn: float, hear: Callable[[str], None]) -> list[tuple[str, str]]:
    """Wait for the node; return what the TPU log tells."""
    tpu = TPU.model_copy(update={"placement": "node", "limits": Limits(turn=turn)})
    tpu_log = TpuLog(hear, open_store(root), "runs/sample-1")
    with node.placed(tpu, tpu_log), get_client(sync_client=True) as client:
        assert users(client) == 1
    return [(entry.event, entry.what) for entry in tpu_log.entries]


def test_one_at_a_time_has_it_even_where_a_person_raised_the_limit(client: SyncPrefectClient) -> None:
    client.upsert_global_concurrency_limit_by_name(limit_of(NODE), 2)
    with node.lease(TPU):
        assert users(client) == 1
        with pytest.raises(TpuInUseError, match="another run has the node night"), node.lease(TPU):
            pass
        with node.lease(TPU.model_copy(update={"node": "another"})):
            pass
    assert users(client) == 0


def test_a_server_that_is_away_at_the_end_fails_nothing(client: SyncPrefectClient) -> None:
    with temporary_settings(), node.lease(TPU):
        assert users(client) == 1
        away = temporary_settings(AWAY)
        away.__enter__()
    away.__exit__(None, None, None)
    # As the server does when the lease has run out.
    client.delete_global_concurrency_limit_by_name(limit_of(NODE))


def test_who_waits_says_so_and_comes_when_the_other_has_left(
    client: SyncPrefectClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_ASK_SECONDS", 0.2)
    has_it, over = threading.Event(), threading.Event()

    def other() -> None:
        with node.lease(TPU):
            has_it.set()
            over.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert has_it.wait(60)
    with pytest.raises(
        TpuInUseError, match=r"another run has the node night; waited 0\.10 s, the setting tpu\.limits\.turn"
    ):
        waiting(f"{tmp_path}/first", 0.1, print)
    # A log of its own: one that goes on says nothing of a wait that it knows.
    told = waiting(f"{tmp_path}/second", 60, lambda _: over.set())
    thread.join()
    assert told == [("wait", "waits for its turn: another run has the node night")]
    ours = ArtifactFilter.model_validate({"key": {"any_": ["sample-tpu"]}})
    tables = client.read_artifacts(artifact_filter=ours)
    assert any("another run has the node night" in str(table.data) for table in tables)


def test_a_lease_that_the_server_dropped_is_taken_again_as_soon_as_it_is_free(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = node._Lease
    monkeypatch.setattr(node, "_RENEW_SECONDS", 0.1)
    monkeypatch.setattr(node, "_ASK_SECONDS", 0.1)
    made, said = list[Any](), list[str]()
    monkeypatch.setattr(node, "_Lease", lambda *given: made.append(lease(*given)) or made[0])
    with node.lease(TPU, said.append):
        # As the server does with a lease that has expired: another flow has it for a while.
        client.release_concurrency_slots_with_lease(made[0]._id)
        other = client.increment_concurrency_slots_with_lease([limit_of(NODE)], 1, "concurrency", 60).json()["lease_id"]
        time.sleep(0.5)
        assert (users(client), said) == (1, [])
        client.release_concurrency_slots_with_lease(UUID(other))
        wait_until(lambda: said, 30)
        assert users(client) == 1
    assert users(client) == 0
    assert said == ["the lease on node night was lost while the server was away, and is taken again"]


def test_a_run_of_a_living_flow_is_not_ended_and_keeps_others_from_the_node(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """The other flow has lost its lease while its server was away."""
    parent = client.create_flow_run(waiting, parameters={}, state=Running())
    call = client.create_task_run(attempt, parent.id, dynamic_key="1")
    deployment = client.read_deployment_by_name(DEPLOYMENT)
    there = client.create_flow_run_from_deployment(deployment.id, work_queue_name=NODE, parent_task_run_id=call.id)
    client.set_flow_run_state(there.id, Running(), force=True)
    with pytest.raises(TpuInUseError, match=f"run {there.name} .* is on the node night, and its flow still waits"):
        waiting(str(tmp_path), 0.1, print)
    assert users(client) == 0
    with pytest.raises(TpuInUseError, match="its flow still waits for it"):
        act_on_node(tmp_path)
    assert state(client, there) == "Running"
    client.set_flow_run_state(parent.id, Crashed(), force=True)
    with pytest.raises(errors.HangError):
        act_on_node(tmp_path, worker=0.1)
    assert state(client, there) == "Crashed", "the flow that waited for it has ended"
