"""What becomes of runs whose processes a worker ended."""

from __future__ import annotations

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Completed, Pending, Running

from podline.deployments.worker import given_up
from podline.tasks.server import TAG, TPU_TAG


@pytest.mark.parametrize(
    ("tags", "states", "ends"),
    [
        ([TAG, "night"], [Pending(), Running()], "AwaitingRetry"),
        ([TPU_TAG], [Pending(), Running()], "AwaitingRetry"),
        # It may have sent half of its letters.
        (["theirs"], [Pending(), Running()], "Crashed"),
        (["theirs"], [Pending()], "AwaitingRetry"),
        (["theirs"], [Pending(), Running(), Completed()], "Completed"),
    ],
)
def test_only_runs_of_podline_begin_again(
    prefect_server: None, tags: list[str], states: list[object], ends: str
) -> None:
    with get_client(sync_client=True) as client:
        if "pool-of-worker" not in [pool.name for pool in client.read_work_pools()]:
            client.create_work_pool(WorkPoolCreate(name="pool-of-worker", type="process"))
        flow = client.create_flow_from_name("letters")
        deployment = client.create_deployment(flow, "all", work_pool_name="pool-of-worker")
        run = client.create_flow_run_from_deployment(deployment, tags=tags).id
        for state in states:
            client.set_flow_run_state(run, state)
        given_up(client, run)
        assert client.read_flow_run(run).state_name == ends
