"""A run that is stopped as planned waits in the queue with its restart left; tasks of killed processes are closed."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import Pause, TerminationSignal
from prefect.flow_engine import run_flow
from prefect.states import AwaitingRetry, Cancelling, Completed, Crashed, Pending, Running

from podline.tasks import stops
from podline.tasks.server import TAG, starts, states_of
from podline.tasks.stops import GONE, close_tasks, close_what_is_left, leave_by_worker, one_line_failures, put_back


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def deployment(client: SyncPrefectClient) -> UUID:
    """Only runs of a deployment can go back into a queue."""
    pool = f"pool-{uuid.uuid4()}"
    client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    return client.create_deployment(client.create_flow_from_name("stopped"), "nightly", work_pool_name=pool)


@pytest.fixture
def by_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in the process of a run that a worker started; what is done about signals is undone."""
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(uuid.uuid4()))
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@flow
@one_line_failures
def stopped() -> None:
    """As Prefect ends a flow's body at SIGTERM."""
    raise TerminationSignal(signal.SIGTERM)


def begin(client: SyncPrefectClient, run: UUID) -> None:
    client.set_flow_run_state(run, Pending())
    assert client.set_flow_run_state(run, Running()).state.is_running()


@pytest.mark.parametrize(
    ("tags", "begun", "left"),
    [
        (["nightly", "podline"], True, "AwaitingRetry"),
        (["podline-tpu"], True, "AwaitingRetry"),
        (["others"], True, "Crashed"),
        ([], False, "AwaitingRetry"),
    ],
)
def test_a_worker_that_is_stopped_begins_no_flow_of_others_again(
    client: SyncPrefectClient, deployment: UUID, tags: list[str], begun: bool, left: str
) -> None:
    run = client.create_flow_run_from_deployment(deployment, tags=tags).id
    client.set_flow_run_state(run, Pending())
    if begun:
        client.set_flow_run_state(run, Running())
    leave_by_worker(client, run)
    assert client.read_flow_run(run).state_name == left


def test_a_stop_is_no_start_so_the_restart_after_a_crash_is_left(client: SyncPrefectClient, deployment: UUID) -> None:
    run = client.create_flow_run_from_deployment(deployment).id
    begin(client, run)
    state = put_back(client, run)
    assert state is not None
    assert (state.name, state.message) == ("AwaitingRetry", stops.MESSAGE)
    client.set_flow_run_state(run, Pending(), force=True)  # the moment at which it is due has not come
    client.set_flow_run_state(run, Running(), force=True)
    # What the automation that starts crashed runs again counts.
    assert client.read_flow_run(run).run_count == 1
    assert starts(states_of(client, run)) == 2
    client.set_flow_run_state(run, Crashed(), force=True)
    client.set_flow_run_state(run, Running(), force=True)
    assert client.read_flow_run(run).run_count == 2


def test_only_a_run_that_is_under_way_or_waits_goes_back(
    client: SyncPrefectClient, deployment: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = client.create_flow_run_from_deployment(deployment).id
    client.set_flow_run_state(waits, Pending())
    assert put_back(client, waits) is not None
    client.set_flow_run_state(waits, Running(), force=True)
    assert client.read_flow_run(waits).run_count == 1
    done, cancelled = (client.create_flow_run_from_deployment(deployment).id for _ in range(2))
    for run, state in ((done, Completed()), (cancelled, Cancelling())):
        begin(client, run)
        monkeypatch.setattr(stops, "flow_run", SimpleNamespace(id=str(run)))
        assert not stops.is_cancelled()
        client.set_flow_run_state(run, state)
        assert put_back(client, run) is None
        assert client.read_flow_run(run).state_name == state.name
    assert stops.is_cancelled()


@pytest.mark.usefixtures("by_a_worker")
def test_a_flow_that_a_worker_started_goes_back_into_the_queue(client: SyncPrefectClient, deployment: UUID) -> None:
    run = client.create_flow_run_from_deployment(deployment)
    with pytest.raises(Pause):
        run_flow(stopped, run)
    ended = client.read_flow_run(run.id)
    assert ended.state_name == "AwaitingRetry"
    assert "Crashed" not in [state.name for state in client.read_flow_run_states(run.id)]


def test_a_flow_without_a_worker_ends(client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ``podline run``, nobody would take it up again."""
    monkeypatch.delenv("PREFECT__FLOW_RUN_ID", raising=False)
    monkeypatch.setattr("os.kill", lambda *_: None)  # the engine sends the signal on to this process
    run = client.create_flow_run(stopped)
    with pytest.raises(TerminationSignal):
        run_flow(stopped, run)
    assert client.read_flow_run(run.id).state_name == "Crashed"


@flow
def training() -> None:
    """Closes what is left, as the flows do."""
    close_what_is_left()


@task
def train() -> None:
    """Never called."""


def killed_run(client: SyncPrefectClient, tags: tuple[str, ...] = (TAG,)) -> tuple[UUID, list[UUID]]:
    """A run with tasks that are under way, wait for a retry, and are done."""
    run = client.create_flow_run(training, tags=tags).id
    client.set_flow_run_state(run, Running())
    states = (Running(), AwaitingRetry(), Completed(message="done"))
    return run, [client.create_task_run(train, run, f"{n}", state=state).id for n, state in enumerate(states)]


def states(client: SyncPrefectClient, tasks: list[UUID]) -> list[tuple[str | None, str | None]]:
    found = [client.read_task_run(each).state for each in tasks]
    return [(state.name, state.message) for state in found if state]


CLOSED = [("Crashed", GONE), ("Crashed", GONE), ("Completed", "done")]


def test_task_runs_are_closed_when_their_run_crashes_or_at_the_start_of_the_next(client: SyncPrefectClient) -> None:
    crashed, hooked = killed_run(client)
    over, tasks = killed_run(client)
    close_tasks(training, client.read_flow_run(crashed), Crashed())
    assert states(client, hooked) == CLOSED
    assert states(client, tasks)[0][0] == "Running"
    client.set_flow_run_state(over, Crashed())
    foreign, of_others = killed_run(client, tags=("another-team",))
    client.set_flow_run_state(foreign, Crashed())
    _, at_work = killed_run(client)
    training()
    assert states(client, tasks) == CLOSED
    assert states(client, of_others)[0][0] == "Running"
    assert states(client, at_work)[0][0] == "Running"
