"""``prefect.yaml`` becomes deployments with forms and schedules, and what a person set on the server stays.

What the forms ask is kept in files beside this. After a change on purpose, ``RENEW_SNAPSHOTS=1 pytest
tests/deployments/test_prefect_yaml.py`` writes the files anew, and ``git diff`` shows what a person will see.
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
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL
from prefect.states import Pending, Running
from prefect_servers import clear
from support.extending import code_of
from waiting import wait_until

from podline.base.errors import SettingsError
from podline.deployments import automations
from podline.deployments.deploy import Deployed, deployed

PROJECT = Path(__file__).parent.parent.parent
TPU = {"PODLINE_TPU_NODE": "node", "PODLINE_TPU_API_PROJECT": "project", "PODLINE_TPU_API_ZONE": "zone"}
SCHEMAS = Path(__file__).parent / "parameter_schemas"
WRITTEN: dict[str, dict[str, Any]] = {
    deployment["name"]: deployment
    for deployment in yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]
}


@pytest.fixture(scope="module")
def filled(prefect_server: None) -> Iterator[SyncPrefectClient]:
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


def test_what_is_written_is_what_the_server_has_and_deploying_again_changes_nothing(filled: SyncPrefectClient) -> None:
    found = on_server(filled)
    assert set(found) == set(WRITTEN)
    for name, deployment in found.items():
        assert deployment.work_pool_name == ("tpu" if name == "tpu-stage" else "cpu")
        assert deployment.job_variables["env"]["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
        assert deployment.enforce_parameter_schema
        assert deployment.description
        assert load_flow_from_entrypoint(WRITTEN[name]["entrypoint"], use_placeholder_flow=False).description
        if not name.startswith("tpu-"):
            assert deployment.global_concurrency_limit.limit == 1
            assert deployment.concurrency_options.collision_strategy == "ENQUEUE"
    for kind in ("sample", "coco", "images", "keypoints"):
        assert f"{kind}-manual" in found
        [schedule] = found[f"{kind}-nightly"].schedules
        assert schedule.active == (kind == "sample")
        assert schedule.schedule.timezone == "Europe/Berlin"
    assert found["sample-manual"].pull_steps == [
        {"prefect.deployments.steps.set_working_directory": {"directory": str(PROJECT)}}
    ]
    assert [change for change in deployed(PROJECT) if change.did != "as it was" and change.kind != "kept"] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_the_form_is_as_it_was(name: str, filled: SyncPrefectClient) -> None:
    """All deployments of a flow have its form."""
    flow = str(WRITTEN[name]["entrypoint"]).rpartition(".")[2]
    found, file = on_server(filled)[name].parameter_openapi_schema, SCHEMAS / f"{flow}.json"
    if os.environ.get("RENEW_SNAPSHOTS"):
        file.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(file.read_text()), "see the head of this file"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sample-manual", {"recipe": "sample", "epochs": -1}),
        ("coco-manual", {"recipe": "coco_pose", "data": {"keep_jpeg": "perhaps"}}),
        ("lr-find", {"step": 300}),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_run(
    filled: SyncPrefectClient, name: str, wrong: dict[str, Any]
) -> None:
    deployment = on_server(filled)[name].id
    before = len(filled.read_flow_runs())
    with pytest.raises(PrefectHTTPStatusError, match="409"):
        filled.create_flow_run_from_deployment(deployment, parameters={"parameters": wrong})
    assert len(filled.read_flow_runs()) == before


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
    subprocess.run(["bash", "-ec", asked], check=True)


@pytest.mark.slow
def test_events_that_data_came_start_one_night(filled: SyncPrefectClient) -> None:
    client = filled
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


NAME = "sample-nightly"
FOR_TPUS = ("tpu-patrol", "tpu-stage")


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """A client of a server that nothing was deployed to; what was is taken away afterwards."""
    with get_client(sync_client=True) as client:
        clear(client)
        yield client
        clear(client)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the flows, one deployment of them, and those for TPUs."""
    document = yaml.safe_load((PROJECT / "prefect.yaml").read_text())
    document["deployments"] = [each for each in document["deployments"] if each["name"] in (NAME, *FOR_TPUS)]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "flows").symlink_to(PROJECT / "flows")
    return tmp_path


def _change(project: Path, **values: Any) -> None:
    document = yaml.safe_load((project / "prefect.yaml").read_text())
    [deployment] = [each for each in document["deployments"] if each["name"] == NAME]
    deployment |= values
    (project / "prefect.yaml").write_text(yaml.safe_dump(document))


def _deploy(project: Path, **how: Any) -> list[Deployed]:
    return list(deployed(project, **how))


def _nightly(client: SyncPrefectClient) -> Any:
    [found] = [each for each in client.read_deployments() if each.name == NAME]
    return found


def _schedules(deployment: Any) -> set[tuple[str, bool]]:
    return {(each.schedule.cron, each.active) for each in deployment.schedules}


def _set(found: Any) -> dict[str, Any]:
    """What a person may set, and a deployment leaves alone."""
    return {
        "parameters": found.parameters,
        "schedules": _schedules(found),
        "tags": sorted(found.tags),
        "limit": found.global_concurrency_limit.limit,
        "variables": found.job_variables,
        "paused": found.paused,
    }


@pytest.mark.slow
def test_what_a_person_set_stays_and_the_files_values_come_when_asked_for(
    client: SyncPrefectClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Deployed("deployment", NAME, "made") in _deploy(project)
    assert {pool.name for pool in client.read_work_pools()} == {"cpu"}
    assert {each.name for each in client.read_deployments()} == {NAME}
    found = _nightly(client)
    written = _set(found)
    assert "](" not in found.description
    mine = DeploymentUpdate(
        parameters={"parameters": {"recipe": "mnist", "source": "/data"}},
        description="Mine.\n\n[All nights](http://127.0.0.1:1/)",
        tags=["podline", "mine"],
        concurrency_limit=3,
        job_variables={"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "MINE": "1"}},
        paused=True,
    )
    client.update_deployment(found.id, mine)
    [schedule] = found.schedules
    client.update_deployment_schedule(found.id, schedule.id, active=False)
    later = DeploymentScheduleCreate(schedule=CronSchedule(cron="0 5 * * 6", timezone="UTC"), active=True)
    client.create_deployment_schedules(found.id, [later])
    edited = _nightly(client)
    # Nothing is written where nothing is to be done.
    assert Deployed("deployment", NAME, "as it was") in _deploy(project)
    assert _nightly(client).updated == edited.updated

    # A new version of the file, and pages at another address: code, form and the link are renewed, and no more.
    monkeypatch.setenv("PODLINE_PAGES_URL", "https://nights.example/p/")
    anew = {
        "schedules": [{"cron": "0 6 * * *", "timezone": "UTC"}],
        "parameters": {"parameters": {"recipe": "cifar10", "source": "/raw"}},
    }
    _change(project, description="Tonight.", pull=[], concurrency_limit=2, **anew)
    client.update_deployment(found.id, DeploymentUpdate(entrypoint="old.night", parameter_openapi_schema=None))
    changes = _deploy(project)
    assert Deployed("deployment", NAME, "changed") in changes
    assert [change for change in changes if change.kind == "kept"]
    renewed = _nightly(client)
    assert _set(renewed) == _set(edited)
    assert renewed.description == "Mine.\n\n[All nights](https://nights.example/p/)"
    assert (renewed.pull_steps, renewed.entrypoint) == ([], found.entrypoint)
    assert renewed.parameter_openapi_schema == found.parameter_openapi_schema

    _deploy(project, overwrite=True)
    asked = _nightly(client)
    assert asked.description == "Tonight.\n\n[All nights](https://nights.example/p/)"
    expected = {"parameters": anew["parameters"], "schedules": {("0 6 * * *", True)}, "limit": 2}
    assert _set(asked) == {**written, **expected}

    # Parameters that a new form refuses.
    form = {**asked.parameter_openapi_schema, "required": [], "properties": {}, "definitions": {}}
    old = DeploymentUpdate(parameter_openapi_schema=form, parameters={"parameters": {"recipe": 3}})
    client.update_deployment(asked.id, old)
    [did] = [change.did for change in _deploy(project) if change.name == NAME]
    assert did.startswith("not changed: its parameters on the server do not fit the form (")
    assert did.endswith("--overwrite replaces them")
    assert Deployed("deployment", NAME, "changed") in _deploy(project, overwrite=True)
    assert _nightly(client).parameters == anew["parameters"]


@pytest.mark.slow
def test_what_is_for_tpus_comes_with_a_tpu_and_notifications_stay_without_their_setting(
    client: SyncPrefectClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CustomWebhookNotificationBlock(name="team", url="http://127.0.0.1:9/").save("team", overwrite=True)
    for name, value in TPU.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PODLINE_NIGHTS_NOTIFY", "custom-webhook/team")
    assert Deployed("automation", automations.FAILURES, "made") in _deploy(project)
    assert {pool.name for pool in client.read_work_pools()} == {"cpu", "tpu"}
    assert {each.name for each in client.read_deployments()} == {NAME, *FOR_TPUS}
    monkeypatch.delenv("PODLINE_NIGHTS_NOTIFY")
    _deploy(project)
    assert len(client.read_automations_by_name(automations.FAILURES)) == 1


@pytest.mark.slow
def test_a_deployment_of_another_flow_that_has_the_same_name_is_left_alone(
    client: SyncPrefectClient, project: Path
) -> None:
    schedule = DeploymentScheduleCreate(schedule=CronSchedule(cron="0 7 * * *", timezone="UTC"), active=True)
    flow = client.create_flow_from_name("of-another-team")
    client.create_deployment(flow, NAME, parameters={"theirs": 1}, schedules=[schedule])
    for _ in range(2):
        _deploy(project)
        theirs = client.read_deployment_by_name(f"of-another-team/{NAME}")
        assert (theirs.parameters, _schedules(theirs)) == ({"theirs": 1}, {("0 7 * * *", True)})
        ours = client.read_deployment_by_name(f"training/{NAME}")
        assert "theirs" not in ours.parameters
        assert _schedules(ours) == {("15 1 * * *", True)}


def test_two_deployments_of_a_flow_with_one_name_are_refused(client: SyncPrefectClient, project: Path) -> None:
    document = yaml.safe_load((project / "prefect.yaml").read_text())
    document["deployments"].append(document["deployments"][0])
    (project / "prefect.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(SettingsError, match="two deployments of a flow have one name"):
        _deploy(project)
    assert not client.read_deployments()


def test_a_flow_that_is_not_there_is_named(client: SyncPrefectClient, project: Path) -> None:
    _change(project, entrypoint="podline.flows.nothing.nothing")
    with pytest.raises(SettingsError, match=r"podline\.flows\.nothing.*sample-nightly"):
        _deploy(project)


@pytest.mark.slow
def test_a_file_of_one_s_own_brings_its_work_pool(client: SyncPrefectClient, tmp_path: Path) -> None:
    (tmp_path / "prefect.yaml").write_text(code_of("## A work pool", "yaml"))
    changes = _deploy(tmp_path)
    assert [change for change in changes if change.kind == "work pool"] == [Deployed("work pool", "gpu", "made")]
    assert client.read_work_pool("gpu").type == "process"
    [found] = client.read_deployments()
    assert (found.name, found.work_pool_name) == ("sample-nightly", "gpu")
    assert found.parameters == {"parameters": {"recipe": "sample", "promote": True}}
    assert Deployed("work pool", "gpu", "as it was") in _deploy(tmp_path)
