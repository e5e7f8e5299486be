"""What the server does by itself, on a real one: crashed runs begin again once, and who is told of what."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from http_answers import Request, answering
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.events import Event, emit_event
from prefect.events.related import tags_as_related_resources
from prefect.states import Crashed, Failed, Pending, Running, Scheduled
from prefect_servers import clear
from waiting import wait_until

from podline.base.errors import SettingsError
from podline.deployments import automations
from podline.tasks.nights import PAUSED
from podline.tasks.server import TAG, TPU_TAG


@pytest.fixture
def told() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a web server, and what it was told."""
    notes: list[dict[str, str]] = []

    def note(request: Request) -> tuple[int, bytes]:
        notes.append(json.loads(request.body))
        return 200, b""

    with answering(note) as url:
        yield f"{url}/", notes


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """A client; no automation is left behind."""
    with get_client(sync_client=True) as client:
        yield client
        clear(client)


def begun(client: SyncPrefectClient, run: UUID) -> None:
    client.set_flow_run_state(run, Pending())
    client.set_flow_run_state(run, Running())


def give_signs_of_life(client: SyncPrefectClient, runs: list[FlowRun]) -> None:
    """Send a heartbeat of each run as Prefect does; from now on, silence would be noticed."""
    resources, event = {f"prefect.flow-run.{run.id}": run for run in runs}, "prefect.flow-run.heartbeat"
    sent = [
        Event.model_validate(
            {
                "event": event,
                "resource": {"prefect.resource.id": resource},
                "related": tags_as_related_resources(run.tags),
            }
        )
        for resource, run in resources.items()
    ]
    # Not by emit_event: its thread would add the tags of the flow run in which this process first sent an event.
    client.request("POST", "/events", json=[each.model_dump(mode="json") for each in sent])
    wanted = {"filter": {"event": {"name": [event]}, "resource": {"id": [*resources]}}}
    # The server writes events down every five seconds.
    wait_until(lambda: len(client.request("POST", "/events/filter", json=wanted).json()["events"]) == len(runs))


@pytest.mark.slow
def test_runs_that_are_gone_crash_and_crashed_runs_begin_again_once(
    client: SyncPrefectClient, told: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The least that the server takes.
    monkeypatch.setattr(automations, "_PAUSE", timedelta(seconds=10))
    monkeypatch.setattr(automations, "SILENCE", timedelta(seconds=10))
    address, notes = told
    name = f"pager-{uuid.uuid4().hex[:8]}"
    CustomWebhookNotificationBlock(
        name="pager", url=address, json_data={"subject": "{{subject}}", "body": "{{body}}"}, headers=None, cookies=None
    ).save(name)
    blocks = automations.blocks_named(client, [f"custom-webhook/{name}"])
    wanted = automations.wanted(blocks)
    assert [automations.put(client, each) for each in wanted] == ["made"] * 4
    assert [automations.put(client, each) for each in automations.wanted(blocks)] == ["as it was"] * 4
    flow = client.create_flow_from_name("nothing")
    deployment = client.create_deployment(flow, "nightly", tags=[TAG])

    def new(*tags: str) -> FlowRun:
        made = client.create_deployment(flow, f"deployment-{uuid.uuid4()}", tags=list(tags)) if tags else deployment
        run = client.create_flow_run_from_deployment(made)
        begun(client, run.id)
        return run

    def was(run: FlowRun, state: str) -> bool:
        return state in [each.name for each in client.read_flow_run_states(run.id)]

    def note(subject: str) -> str:
        wait_until(lambda: any(each["subject"] == subject for each in notes))
        return next(each["body"] for each in notes if each["subject"] == subject)

    # The foreign ones first: when the last of ours is found, they have been silent for longer.
    foreign = [new("nightly", "tpu"), new("podline-of-others")]
    ours = [new(TAG, "nightly"), new(TPU_TAG)]
    give_signs_of_life(client, [*foreign, *ours])

    twice = new()
    client.set_flow_run_state(twice.id, Scheduled(), force=True)
    begun(client, twice.id)
    client.set_flow_run_state(twice.id, Crashed(message="at its second start"))
    # What happened to this one has been dealt with after what happened to the one before.
    once = new()
    client.set_flow_run_state(once.id, Crashed(message="the process was killed by SIGKILL"))
    failed = new()
    client.set_flow_run_state(failed.id, Failed(message="SanityError: no better than guessing"))
    emit_event(
        PAUSED,
        resource={"prefect.resource.id": f"prefect.deployment.{deployment}", "prefect.resource.name": "nightly"},
        related=[{"prefect.resource.id": f"prefect.flow-run.{failed.id}", "prefect.resource.role": "flow-run"}],
        payload={"message": "nightly: 3 nights in a row failed"},
    )
    assert note(f"{once.name}: Crashed").startswith("the process was killed by SIGKILL\n")
    assert note(f"{twice.name}: Crashed").startswith("at its second start\n")
    assert note(f"{failed.name}: Failed").startswith("SanityError: no better than guessing\n")
    message, link = note("nightly: schedule paused").splitlines()
    assert message == "nightly: 3 nights in a row failed"
    assert link.endswith(f"/runs/flow-run/{failed.id}")

    wait_until(lambda: was(once, "AwaitingRetry"))
    assert not was(twice, "AwaitingRetry")
    assert not was(failed, "AwaitingRetry")
    wait_until(lambda: all(was(run, "Crashed") for run in ours))
    assert {client.read_flow_run(run.id).state_name for run in foreign} == {"Running"}


def test_a_block_that_is_not_there_is_named(client: SyncPrefectClient) -> None:
    with pytest.raises(SettingsError, match="no block slack-webhook/nobody"):
        automations.blocks_named(client, ["slack-webhook/nobody"])
