"""A round of the patrol on a real server and the stand-in: what it finds, what it does, and what it leaves alone."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Running, Scheduled
from prefect.variables import Variable
from prefect_servers import users_of_tpu
from standin.bench import SPEC
from standin.cloud import NODE, Cloud
from standin.servers import serving
from standin.timeline import Attempt, Outage, Script, life
from turned_clock import TurnedClock

from podline import cli, errors
from podline.flows.stage_on_node import stage_on_node
from podline.flows.tpu_patrol import tpu_patrol
from podline.flows.training import training
from podline.tasks.node import patrol, tpu_lease, tpu_use
from podline.tasks.node.node_run import DEPLOYMENT
from podline.tasks.runs.tags import TAG
from podline.tpu.patrol import PatrolCase, PatrolFinding

pytestmark = pytest.mark.usefixtures("prefect_server")
HOUR = 3600.0


@dataclass
class Ground:
    """What is patrolled: the server, the stand-in, and the clock of both."""

    client: SyncPrefectClient
    cloud: Cloud
    clock: TurnedClock

    def round(self) -> dict[str, PatrolFinding]:
        """One round, by what was found."""
        return {finding.what: finding for finding in tpu_patrol()}

    def take_lease(self) -> None:
        """As a run does whose server then forgets whose it was."""
        self.client.update_global_concurrency_limit(tpu_lease.LIMIT, GlobalConcurrencyLimitUpdate(active_slots=1))

    @property
    def lease_taken(self) -> bool:
        """Whether somebody has the limit's only slot."""
        return users_of_tpu(self.client) > 0

    def running(self, beat_ago: float | None = None, tag: str = TAG) -> FlowRun:
        """A run that is said to be running, perhaps with a heartbeat some seconds ago."""
        run = self.client.create_flow_run(training, state=Running(), tags=[tag])
        if beat_ago is not None:
            beat = {
                "id": str(uuid.uuid4()),
                "occurred": (datetime.now(UTC) - timedelta(seconds=beat_ago)).isoformat(),
                "event": "prefect.flow-run.heartbeat",
                "resource": {"prefect.resource.id": f"prefect.flow-run.{run.id}"},
            }
            self.client.request("POST", "/events", json=[beat]).raise_for_status()
            self._until_known(str(beat["id"]))
        return run

    def _until_known(self, event: str) -> None:
        """The server writes events down in batches, seconds later."""
        deadline = time.monotonic() + 240
        question = {"filter": {"id": {"id": [event]}}, "limit": 1}
        while not self.client.request("POST", "/events/filter", json=question).json()["events"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def on_node(self) -> FlowRun:
        """A run on the node for which no flow waits."""
        deployment = self.client.read_deployment_by_name(DEPLOYMENT)
        return self.client.create_flow_run_from_deployment(deployment.id, state=Scheduled(), work_queue_name=NODE)

    def state(self, run: FlowRun) -> str | None:
        """The name of a run's state."""
        return self.client.read_flow_run(run.id).state_name


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes grounds: ``with ground(script, mode) as it``."""
    clock = TurnedClock(1_800_000_000.0)
    monkeypatch.setattr(tpu_use, "CLOCK", clock)
    tpu_lease.make_limit()

    @contextlib.contextmanager
    def grounds(script: Script | None = None, mode: str = "repair", placement: str = "node") -> Iterator[Ground]:
        cloud = Cloud(clock, script or Script())
        with serving(cloud) as address, get_client(sync_client=True) as client:
            values = {"NODE": NODE, "API_PROJECT": "test-project", "API_ZONE": "us-central2-b", "PATROL": mode}
            values |= {"PLACEMENT": placement}
            values |= {"API_ENDPOINT": address, "API_INSECURE": "true", "LIMITS_PATIENCE": "60"}
            values |= {"SPEC_ACCELERATOR_TYPE": "v4-8", "SPEC_RUNTIME_VERSION": "tpu-vm"}
            for name, value in values.items():
                monkeypatch.setenv(f"PODLINE_TPU_{name}", value)
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name="tpu", type="process"))
            client.create_deployment(client.create_flow(stage_on_node), "tpu-stage", work_pool_name="tpu")
            Variable.set("tpu_patrol", "{}", overwrite=True)
            it = Ground(client, cloud, clock)
            yield it
            client.update_global_concurrency_limit(tpu_lease.LIMIT, GlobalConcurrencyLimitUpdate(active_slots=0))

    return grounds


def test_a_node_that_nobody_uses_is_stopped_after_the_time_that_is_set(ground: Any) -> None:
    with ground() as it:
        assert it.round()["node night"].case is PatrolCase.RESTING
        it.clock.turn(HOUR - 1)
        assert it.round()["node night"].case is PatrolCase.RESTING
        assert it.cloud.calls == []
        it.clock.turn(1)
        found = it.round()["node night"]
        assert (found.case, found.done) == (PatrolCase.IDLE, "stopped")
        assert it.cloud.count("stop") == 1
        assert it.round()["node night"].case is PatrolCase.OFF
        assert not it.lease_taken


def test_a_node_in_use_is_not_stopped_and_its_idleness_begins_with_the_end_of_the_use(ground: Any) -> None:
    with ground() as it:
        it.round()
        it.clock.turn(2 * HOUR)
        it.take_lease()
        run = it.running()
        it.client.update_flow_run_labels(run.id, {"podline.lease": "has it"})
        found = it.round()
        assert (found["lease tpu"].case, found["node night"].case) == (PatrolCase.HELD, PatrolCase.USED)
        it.client.update_flow_run_labels(run.id, {"podline.lease": "had it"})
        it.client.update_global_concurrency_limit(tpu_lease.LIMIT, GlobalConcurrencyLimitUpdate(active_slots=0))
        assert it.round()["node night"].case is PatrolCase.RESTING
        assert it.cloud.calls == []


def test_a_spot_node_and_a_preempted_one_are_deleted_since_neither_can_be_stopped(ground: Any) -> None:
    with ground(Script(spot=True)) as it:
        it.round()
        it.clock.turn(HOUR)
        assert it.round()["node night"].done == "deleted"
        assert "node night" not in it.round()
    with ground(Script(life=life("PREEMPTED"))) as it:
        assert (it.round()["node night"].case, it.cloud.count("delete")) == (PatrolCase.GONE, 1)


def test_nodes_and_requests_of_others_are_listed_and_left_alone(ground: Any) -> None:
    with ground() as it:
        it.cloud.add("other", life("PREEMPTED"))
        it.round()
        it.clock.turn(9 * HOUR)
        found = it.round()["node other"]
        assert (found.case, found.done) == (PatrolCase.OTHERS, "")
        assert [name for _at, _verb, name in it.cloud.calls] == [NODE]


def test_a_request_that_failed_is_deleted(ground: Any, tmp_path: Path) -> None:
    refused = Attempt(30.0, code=code_pb2.RESOURCE_EXHAUSTED, message="no more capacity")
    with ground(Script(life=None, turns=(refused,))) as it:
        patrol.CloudTpu(patrol.settings.load().tpu.api, it.clock).create_queued_resource(  # type: ignore[union-attr]
            NODE, SPEC.model_copy(update={"queued": True})
        )
        assert it.round()["request night"].case is PatrolCase.RESTING
        it.clock.turn(30)
        found = it.round()["request night"]
        assert (found.case, found.done, found.seen) == (PatrolCase.REFUSED, "deleted", "FAILED no more capacity")
        assert it.cloud.count("unqueue") == 1


def test_a_lease_that_nobody_has_is_given_back_when_it_should_have_run_out(ground: Any) -> None:
    with ground() as it:
        it.take_lease()
        found = it.round()
        assert (found["lease tpu"].case, found["node night"].case) == (PatrolCase.ENDING, PatrolCase.USED)
        it.clock.turn(599)
        assert it.round()["lease tpu"].case is PatrolCase.ENDING
        assert it.lease_taken
        it.clock.turn(1)
        assert it.round()["lease tpu"].done == "given back"
        assert not it.lease_taken


def test_a_run_whose_signs_of_life_have_stopped_is_marked_as_crashed(
    ground: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ground() as it:
        silent, unseen, foreign = it.running(beat_ago=HOUR), it.running(), it.running(beat_ago=HOUR, tag="others")
        monkeypatch.setattr(patrol, "SILENCE", timedelta())
        found = it.round()
        assert found[f"run {silent.name}"].done == "marked as crashed"
        assert found[f"run {unseen.name}"].case is PatrolCase.UNSEEN
        assert f"run {foreign.name}" not in found
        assert (it.state(silent), it.state(unseen), it.state(foreign)) == ("Crashed", "Running", "Running")


def test_a_run_on_the_node_that_no_flow_waits_for_is_cancelled(ground: Any) -> None:
    with ground() as it:
        run = it.on_node()
        assert it.round()[f"run {run.name}"].done == "cancelled"
        assert it.state(run) == "Cancelled"


def test_models_that_run_here_need_no_deployment(ground: Any) -> None:
    with ground(placement="here") as it:
        it.client.delete_deployment(it.client.read_deployment_by_name(DEPLOYMENT).id)
        assert it.round()["node night"].case is PatrolCase.RESTING


def test_by_default_it_only_tells(ground: Any) -> None:
    with ground(mode="report") as it:
        run = it.on_node()
        it.take_lease()
        it.round()
        it.clock.turn(2 * HOUR)
        found = it.round()
        assert "tpu.patrol is report" in found[f"run {run.name}"].done
        assert "tpu.patrol is report" in found["lease tpu"].done
        assert it.lease_taken
        assert it.state(run) == "Scheduled"
        assert it.cloud.calls == []
        it.client.delete_flow_run(run.id)


def test_an_api_that_does_not_answer_fails_the_run_and_all_else_is_done(ground: Any) -> None:
    with ground(Script(outages=(Outage(0, 1e9),))) as it:
        run = it.on_node()
        with pytest.raises(errors.TpuApiError, match="unavailable"):
            it.round()
        assert it.state(run) == "Cancelled"
        tables = [artifact for artifact in it.client.read_artifacts() if artifact.key == "tpu-patrol"]
        newest = max(tables, key=lambda artifact: artifact.created)
        assert "cancel it" in str(newest.data)


def test_a_round_by_hand_prints_what_it_found(ground: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with ground() as it:
        it.cloud.add("other", life("STOPPED"))
        with pytest.raises(SystemExit) as ended:
            cli.main(["tpu", "patrol", "--json"])
    assert ended.value.code == 0
    whats = [finding["what"] for finding in json.loads(capsys.readouterr().out)]
    assert {"node night", "node other"} <= set(whats)


def test_a_round_by_hand_asks_which_server(ground: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with ground(), temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(SystemExit) as ended:
        cli.main(["tpu", "patrol"])
    assert ended.value.code == 2
    assert "set PREFECT_API_URL" in capsys.readouterr().err


def test_a_round_by_hand_says_that_the_server_is_away(ground: Any, capsys: pytest.CaptureFixture[str]) -> None:
    away = {PREFECT_API_URL: "http://night:hush@127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with ground(), temporary_settings(away), pytest.raises(SystemExit) as ended:
        cli.main(["tpu", "patrol"])
    assert ended.value.code == 75
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("podline: error: the Prefect server http://***@127.0.0.1:1/api does not answer (")


def test_without_a_tpu_the_schedule_finds_nothing_and_a_hand_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert tpu_patrol() == []
    with pytest.raises(SystemExit) as ended:
        cli.main(["tpu", "patrol"])
    assert ended.value.code == 2
    assert "which TPU?" in capsys.readouterr().err
