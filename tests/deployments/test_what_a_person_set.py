"""What a person set on the server stays when it is deployed again; code and form are renewed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect_servers import clear
from support.extending import code_of

from podline.base.errors import SettingsError
from podline.deployments import automations
from podline.deployments.deploy import Deployed, deployed

PROJECT = Path(__file__).parent.parent.parent
NAME = "sample-nightly"
TPU = {"PODLINE_TPU_NODE": "node", "PODLINE_TPU_API_PROJECT": "project", "PODLINE_TPU_API_ZONE": "zone"}
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
    _write(tmp_path, document)
    (tmp_path / "flows").symlink_to(PROJECT / "flows")
    return tmp_path


def _write(project: Path, document: dict[str, Any]) -> None:
    (project / "prefect.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def _change(project: Path, **values: Any) -> None:
    document = yaml.safe_load((project / "prefect.yaml").read_text())
    [deployment] = [each for each in document["deployments"] if each["name"] == NAME]
    deployment |= values
    _write(project, document)


def _deploy(project: Path, **how: Any) -> list[Deployed]:
    return list(deployed(project, **how))


def _nightly(client: SyncPrefectClient) -> Any:
    [found] = [each for each in client.read_deployments() if each.name == NAME]
    return found


def _schedules(deployment: Any) -> set[tuple[str, bool]]:
    return {(each.schedule.cron, each.active) for each in deployment.schedules}


def _given(recipe: str, source: str) -> dict[str, Any]:
    return {"parameters": {"recipe": recipe, "source": source, "promote": True}}


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
        parameters=_given("mnist", "/data"),
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
    anew = {"schedules": [{"cron": "0 6 * * *", "timezone": "UTC"}], "parameters": _given("cifar10", "/raw")}
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


@pytest.mark.slow
def test_parameters_that_a_new_form_refuses_are_told_and_the_others_go_on(
    client: SyncPrefectClient, project: Path
) -> None:
    _deploy(project)
    found = _nightly(client)
    form = {**found.parameter_openapi_schema, "required": [], "properties": {}, "definitions": {}}
    old = DeploymentUpdate(parameter_openapi_schema=form, parameters={"parameters": {"recipe": 3}})
    client.update_deployment(found.id, old)
    [did] = [change.did for change in _deploy(project) if change.name == NAME]
    assert did.startswith("not changed: its parameters on the server do not fit the form (")
    assert did.endswith("--overwrite replaces them")
    assert Deployed("deployment", NAME, "changed") in _deploy(project, overwrite=True)
    assert _nightly(client).parameters["parameters"]["recipe"] == "sample"


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
    client.create_deployment(flow, NAME, tags=["tpu"], parameters={"theirs": 1}, schedules=[schedule])
    for _ in range(2):
        changes = _deploy(project)
        assert not [change for change in changes if change.name == "tpu"]
        theirs = client.read_deployment_by_name(f"of-another-team/{NAME}")
        assert theirs.parameters == {"theirs": 1}
        assert [each.schedule.cron for each in theirs.schedules] == ["0 7 * * *"]
        ours = client.read_deployment_by_name(f"training/{NAME}")
        assert "theirs" not in ours.parameters
        assert [each.schedule.cron for each in ours.schedules] == ["15 1 * * *"]


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
