"""What the server does by itself, on a real one: crashed runs begin again once, and who is told of what."""

from __future__ import annotations

import http.server
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.events import emit_event
from prefect.events.related import tags_as_related_resources
from prefect.states import Crashed, Failed, Pending, Running

from podline.deployments import automations
from podline.errors import SettingsError
from podline.tasks.runs.names import TAG, TPU_TAG
from podline.tasks.runs.nights import PAUSED


class Pager(http.server.BaseHTTPRequestHandler):
    """Notes what it is told."""

    told: list[dict[str, str]]

    def do_POST(self) -> None:
        """A notification."""
        self.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (likewise)
        """Says nothing."""


@pytest.fixture
def told() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a web server, and what it was told."""
    notes: list[dict[str, str]] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Noting", (Pager,), {"told": notes})) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", notes
        server.shutdown()
        thread.join()


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """A client; no automation is left behind."""
    with get_client(sync_client=True) as client:
        yield client
        for name in automations.wanted([]):
            automations.put(client, name, None)


@pytest.fixture
def deployment(client: SyncPrefectClient) -> UUID:
    """One whose runs a person starts."""
    pool = f"pool-{uuid.uuid4()}"
    client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    flow = client.create_flow_from_name("nothing")
    return client.create_deployment(flow, "nightly", work_pool_name=pool, tags=[TAG])


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)


def begun(client: SyncPrefectClient, run: UUID) -> None:
    """It is under way."""
    client.set_flow_run_state(run, Pending())
    client.set_flow_run_state(run, Running())


def gives_a_sign_of_life(client: SyncPrefectClient, run: UUID) -> None:
    """Send a heartbeat as Prefect does; from now on, silence would be noticed."""
    resource, event = f"prefect.flow-run.{run}", "prefect.flow-run.heartbeat"
    related = tags_as_related_resources(client.read_flow_run(run).tags)
    emit_event(event, resource={"prefect.resource.id": resource}, related=list(related))
    wanted = {"filter": {"event": {"name": [event]}, "resource": {"id": [resource]}}}
    wait_until(lambda: client.request("POST", "/events/filter", json=wanted).json()["events"])


def test_a_run_that_crashes_begins_again_once_and_each_failure_is_told(
    client: SyncPrefectClient,
    deployment: UUID,
    told: tuple[str, list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(automations, "_PAUSE", timedelta(seconds=10))  # the least that the server takes
    address, notes = told
    pager = CustomWebhookNotificationBlock(
        name="pager",
        url=address,
        json_data={"subject": "{{subject}}", "body": "{{body}}"},
        headers=None,
        cookies=None,
    )
    name = f"pager-{uuid.uuid4().hex[:8]}"
    pager.save(name)
    for automation, wanted in automations.wanted(automations.told(client, [f"custom-webhook/{name}"])).items():
        assert automations.put(client, automation, wanted) == "made"

    def new() -> Any:
        run = client.create_flow_run_from_deployment(deployment)
        begun(client, run.id)
        return run

    def state(run: Any) -> str | None:
        return client.read_flow_run(run.id).state_name

    first = new()
    gives_a_sign_of_life(client, first.id)
    client.set_flow_run_state(first.id, Crashed(message="the process was killed by SIGKILL"))
    wait_until(lambda: state(first) == "AwaitingRetry")
    wait_until(lambda: len(notes) == 1)
    assert notes[0]["subject"] == f"{first.name}: Crashed"
    assert notes[0]["body"].startswith("the process was killed by SIGKILL\n")

    begun(client, first.id)
    client.set_flow_run_state(first.id, Crashed(message="again"))
    wait_until(lambda: len(notes) == 2)
    # What happened to a later one has been dealt with, and so what happened to the first.
    second = new()
    client.set_flow_run_state(second.id, Crashed(message="another"))
    wait_until(lambda: state(second) == "AwaitingRetry")
    assert state(first) == "Crashed"
    assert [each.name for each in client.read_flow_run_states(first.id)].count("AwaitingRetry") == 1

    third = new()
    client.set_flow_run_state(third.id, Failed(message="SanityError: no better than guessing"))
    wait_until(lambda: len(notes) == 4)
    assert notes[3]["subject"] == f"{third.name}: Failed"
    assert state(third) == "Failed"

    emit_event(
        PAUSED,
        resource={"prefect.resource.id": f"prefect.deployment.{deployment}", "prefect.resource.name": "nightly"},
        related=[{"prefect.resource.id": f"prefect.flow-run.{third.id}", "prefect.resource.role": "flow-run"}],
        payload={"message": "nightly: 3 nights in a row failed"},
    )
    wait_until(lambda: len(notes) == 5)
    assert notes[4]["subject"] == "nightly: schedule paused"
    message, link = notes[4]["body"].splitlines()
    assert message == "nightly: 3 nights in a row failed"
    assert link.endswith(f"/runs/flow-run/{third.id}")

    # As it was, and without anybody to tell.
    assert automations.put(client, automations.AGAIN, automations.wanted([])[automations.AGAIN]) == "as it was"
    assert automations.put(client, automations.FAILURES, None) == automations.REMOVED
    assert automations.put(client, automations.FAILURES, None) == "as it was"


def test_a_silent_run_becomes_crashed_if_it_is_ours_and_others_are_left_alone(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automations, "SILENCE", timedelta(seconds=10))  # the least that the server takes
    automations.put(client, automations.GONE, automations.wanted([])[automations.GONE])
    flow = client.create_flow_from_name("nothing")

    def running(*tags: str) -> UUID:
        name = f"deployment-{uuid.uuid4()}"
        run = client.create_flow_run_from_deployment(client.create_deployment(flow, name, tags=list(tags))).id
        begun(client, run)
        gives_a_sign_of_life(client, run)
        return run

    # The foreign ones first: when the last of ours is found, they have been silent for longer.
    foreign = [running(), running("nightly", "tpu"), running("podline-of-others")]
    ours = [running(TAG, "nightly"), running(TPU_TAG)]
    wait_until(lambda: all(client.read_flow_run(run).state_name == "Crashed" for run in ours))
    assert {client.read_flow_run(run).state_name for run in foreign} == {"Running"}


def test_a_block_that_is_not_there_is_named(client: SyncPrefectClient) -> None:
    with pytest.raises(SettingsError, match="no block slack-webhook/nobody"):
        automations.told(client, ["slack-webhook/nobody"])
