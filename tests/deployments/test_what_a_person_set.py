"""What a person set on the server stays when it is deployed again: parameters, schedules, notifications."""

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

from podline.deployments import automations
from podline.deployments.deploy import Change, deployed
from podline.errors import SettingsError

PROJECT = Path(__file__).parent.parent.parent
NAME = "sample-nightly"
RECIPE = "parameters.parameters.recipe"
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


def _deploy(project: Path, **how: Any) -> list[Change]:
    return list(deployed(project, **how))


def _nightly(client: SyncPrefectClient) -> Any:
    [found] = [each for each in client.read_deployments() if each.name == NAME]
    return found


def _about(changes: list[Change], path: str) -> str:
    [did] = [change.did for change in changes if change.name == f"{NAME}.{path}"]
    return did


def _schedules(deployment: Any) -> set[tuple[str, bool]]:
    return {(each.schedule.cron, each.active) for each in deployment.schedules}


def _given(recipe: str, source: str) -> dict[str, Any]:
    return {"parameters": {"recipe": recipe, "source": source, "promote": True}}


@pytest.mark.slow
def test_a_persons_values_stay_and_are_told_and_the_files_come_when_asked_for(
    client: SyncPrefectClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _deploy(project)
    assert {pool.name for pool in client.read_work_pools()} == {"cpu"}
    assert {each.name for each in client.read_deployments()} == {NAME}
    found = _nightly(client)
    plain = found.description
    assert "](" not in plain
    client.update_deployment(found.id, DeploymentUpdate(parameters=_given("mnist", "/data")))
    [schedule] = found.schedules
    client.update_deployment_schedule(found.id, schedule.id, active=False)
    later = DeploymentScheduleCreate(schedule=CronSchedule(cron="0 5 * * 6", timezone="UTC"), active=True)
    client.create_deployment_schedules(found.id, [later])

    edited = _nightly(client).updated
    again = _deploy(project)
    found = _nightly(client)
    assert (found.updated, found.parameters) == (edited, _given("mnist", "/data"))
    assert _schedules(found) == {("15 1 * * *", False), ("0 5 * * 6", True)}
    assert _about(again, RECIPE) == 'stays "mnist", as set on the server; prefect.yaml has "sample"'
    assert _about(again, "parameters.parameters.source").startswith('stays "/data"')
    assert Change("deployment", NAME, "as it was") in again

    # Pages are served from now on: what nobody changed follows, and leads to the index of nights.
    monkeypatch.setenv("PODLINE_PAGES_URL", "https://nights.example/p/")
    _deploy(project)
    assert _nightly(client).description == f"{plain}\n\n[All nights](https://nights.example/p/)"
    monkeypatch.delenv("PODLINE_PAGES_URL")

    # The file changes: another value goes to the server, the one that both changed stays.
    _change(project, description="Tonight.", parameters=_given("cifar10", "/raw"))
    both = _deploy(project)
    assert _nightly(client).description == "Tonight."
    assert _nightly(client).parameters["parameters"]["recipe"] == "mnist"
    assert _about(both, RECIPE).startswith('stays "mnist", though prefect.yaml has "cifar10"; --overwrite')

    asked = _deploy(project, overwrite=True)
    found = _nightly(client)
    assert (found.parameters, _schedules(found)) == (_given("cifar10", "/raw"), {("15 1 * * *", True)})
    assert _about(asked, RECIPE) == 'was "mnist" on the server, is now "cifar10", as in prefect.yaml'


@pytest.mark.slow
def test_what_is_for_tpus_comes_with_a_tpu_and_notifications_stay_without_their_setting(
    client: SyncPrefectClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CustomWebhookNotificationBlock(name="team", url="http://127.0.0.1:9/").save("team", overwrite=True)
    for name, value in TPU.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PODLINE_NIGHTS_NOTIFY", "custom-webhook/team")
    assert Change("automation", automations.FAILURES, "made") in _deploy(project)
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
    assert [change for change in changes if change.kind == "work pool"] == [Change("work pool", "gpu", "made")]
    assert client.read_work_pool("gpu").type == "process"
    [found] = client.read_deployments()
    assert (found.name, found.work_pool_name) == ("sample-nightly", "gpu")
    assert found.parameters == {"parameters": {"recipe": "sample", "promote": True}}
    assert Change("work pool", "gpu", "as it was") in _deploy(tmp_path)
