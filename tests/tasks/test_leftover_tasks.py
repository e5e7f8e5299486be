"""Task runs whose process was killed, on a real server."""

from __future__ import annotations

from uuid import UUID

from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.states import AwaitingRetry, Completed, Crashed, Running

from podline.tasks.server import TAG
from podline.tasks.stops import GONE, close_tasks, close_what_is_left


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


def test_the_hook_of_a_crashed_run_closes_its_tasks(prefect_server: None) -> None:
    with get_client(sync_client=True) as client:
        run, tasks = killed_run(client)
        _, others = killed_run(client)
        close_tasks(training, client.read_flow_run(run), Crashed())
        assert states(client, tasks) == CLOSED
        assert states(client, others)[0][0] == "Running"


def test_a_run_closes_those_of_its_earlier_start_and_of_runs_that_are_over(prefect_server: None) -> None:
    with get_client(sync_client=True) as client:
        over, tasks = killed_run(client)
        client.set_flow_run_state(over, Crashed())
        foreign, of_others = killed_run(client, tags=("another-team",))
        client.set_flow_run_state(foreign, Crashed())
        _, at_work = killed_run(client)
        training()
        assert states(client, tasks) == CLOSED
        assert states(client, of_others)[0][0] == "Running"
        assert states(client, at_work)[0][0] == "Running"
