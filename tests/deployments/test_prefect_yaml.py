"""``prefect.yaml`` on a real server: deployments, forms, schedules; what the forms ask is kept in files beside this.

A form that was changed on purpose: ``RENEW_SNAPSHOTS=1 pytest tests/deployments/test_prefect_yaml.py`` writes the files
anew, and ``git diff`` shows what a person will see.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL
from prefect.states import Pending, Running
from prefect_servers import clear, wait_until

from podline.deployments.deploy import deployed

PROJECT = Path(__file__).parent.parent.parent
TPU = {"PODLINE_TPU_NODE": "node", "PODLINE_TPU_API_PROJECT": "project", "PODLINE_TPU_API_ZONE": "zone"}
SCHEMAS = Path(__file__).parent / "parameter_schemas"
WRITTEN: dict[str, dict[str, Any]] = {
    deployment["name"]: deployment
    for deployment in yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]
}
NIGHTS = [name for name in WRITTEN if name.endswith("-nightly")]


@pytest.fixture(scope="module")
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """A client of a server that was deployed to; what others' tests would stumble over is taken away afterwards."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in TPU.items():
            environment.setenv(name, value)
        list(deployed(PROJECT))
    with get_client(sync_client=True) as client:
        yield client
        clear(client)


def on_server(client: SyncPrefectClient) -> dict[str, Any]:
    return {deployment.name: deployment for deployment in client.read_deployments() if deployment.name in WRITTEN}


def test_what_is_written_is_what_the_server_has_and_deploying_again_changes_nothing(client: SyncPrefectClient) -> None:
    found = on_server(client)
    assert set(found) == set(WRITTEN)
    for name, deployment in found.items():
        assert deployment.work_pool_name == ("tpu" if name == "tpu-stage" else "cpu")
        assert deployment.job_variables["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
        assert deployment.enforce_parameter_schema
        assert deployment.description
        assert load_flow_from_entrypoint(WRITTEN[name]["entrypoint"], use_placeholder_flow=False).description
    for kind in ("sample", "coco", "images", "keypoints"):
        assert {f"{kind}-nightly", f"{kind}-manual"} <= set(found)
    for name in (each for each in found if not each.startswith("tpu-")):
        assert found[name].global_concurrency_limit.limit == 1
        assert found[name].concurrency_options.collision_strategy == "ENQUEUE"
    for name in NIGHTS:
        [schedule] = found[name].schedules
        assert schedule.active == (name == "sample-nightly")
        assert schedule.schedule.timezone == "Europe/Berlin"
    assert found["sample-manual"].pull_steps == [
        {"prefect.deployments.steps.set_working_directory": {"directory": str(PROJECT)}}
    ]
    assert [change for change in deployed(PROJECT) if change.did != "as it was" and change.kind != "kept"] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_the_form_is_as_it_was(name: str, client: SyncPrefectClient) -> None:
    """All deployments of a flow have its form."""
    flow = str(WRITTEN[name]["entrypoint"]).rpartition(".")[2]
    found, file = on_server(client)[name].parameter_openapi_schema, SCHEMAS / f"{flow}.json"
    if os.environ.get("RENEW_SNAPSHOTS"):
        file.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(file.read_text()), "see the head of this file"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sample-manual", {"recipe": "sample", "epochs": -1}),
        ("coco-manual", {"recipe": "coco_pose", "data": {"keep_jpeg": "perhaps"}}),
        ("sample-manual", {"recipe": "sample", "batch_size": 1}),
        ("lr-find", {"step": 300}),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_run(
    client: SyncPrefectClient, name: str, wrong: dict[str, Any]
) -> None:
    deployment = on_server(client)[name].id
    before = len(client.read_flow_runs())
    with pytest.raises(PrefectHTTPStatusError, match="409") as refused:
        client.create_flow_run_from_deployment(deployment, parameters={"parameters": wrong})
    assert "Error creating flow run" in refused.value.response.text
    assert len(client.read_flow_runs()) == before


def _post(event: str) -> None:
    """What the page on changing data posts, by its own command."""
    page = (PROJECT / "docs/how-to/changing-data.md").read_text()
    [command] = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "/api/events" in block]
    url = PREFECT_API_URL.value() or ""
    asked = (
        re.sub(r'-u "[^"]*" ', "", command)
        .replace("http://127.0.0.1:4200/api", url)
        .replace("podline.data.images", event)
    )
    done = subprocess.run(["bash", "-ec", asked], capture_output=True, text=True, check=True)
    assert not done.stdout


@pytest.mark.slow
def test_events_that_data_came_start_one_night(client: SyncPrefectClient) -> None:
    [found] = client.read_automations_by_name("Podline: images-nightly, when data came")
    # The least that the server takes, in place of a minute.
    trigger = found.trigger.model_copy(update={"within": timedelta(seconds=10)})
    written = found.model_dump(include={"name", "description", "actions"})
    client.update_automation(found.id, AutomationCore.model_validate({**written, "trigger": trigger}))
    night = on_server(client)["images-nightly"]
    of_night = DeploymentFilter(id=DeploymentFilterId(any_=[night.id]))

    def begun() -> list[Any]:
        return [run for run in client.read_flow_runs(deployment_filter=of_night) if not run.auto_scheduled]

    for _ in range(3):
        _post("podline.data.images")
    _post("podline.data.others")
    wait_until(begun, every=1)
    time.sleep(12)
    [run] = begun()
    assert run.parameters == night.parameters
    assert run.created_by.type == "AUTOMATION"
    _post("podline.data.images")
    wait_until(lambda: len(begun()) == 2, every=1)
    begin = client.set_flow_run_state
    first, second = (each.id for each in begun())
    assert begin(first, Pending()).state.name == "Pending"
    begin(first, Running())
    assert begin(second, Pending()).state.name == "AwaitingConcurrencySlot"
