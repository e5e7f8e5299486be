"""A round of the patrol on a real server and the stand-in: what it finds, what it does, and what it leaves alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.cloud import tpu_v2
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Running, Scheduled
from prefect.variables import Variable
from standin.bench import set_environment
from standin.cloud import NODE, PARENT, Cloud
from standin.servers import serving
from standin.timeline import Attempt, Outage, Script, life
from turned_clock import TurnedClock

from podline import cli
from podline.base import errors
from podline.flows.stage_on_node import stage_on_node
from podline.flows.tpu_patrol import tpu_patrol
from podline.settings import machine as settings
from podline.tasks import patrol
from podline.tasks.node import DEPLOYMENT, limit_of
from podline.tasks.patrol import _Round, memory_of, patrolled
from podline.tasks.server import TAG
from podline.tpu.patrol import PatrolCase, PatrolFinding

pytestmark = pytest.mark.usefixtures("prefect_server")
HOUR = 3600.0
LIMIT = limit_of(NODE)


@dataclass
class Ground:
    """What is patrolled: the server, the stand-in, and the clock of both."""

    client: SyncPrefectClient
    cloud: Cloud
    clock: TurnedClock

    def round(self) -> dict[str, PatrolFinding]:
        """One round, by what was found; without the flow around it, which takes a second."""
        tpu = settings.load().tpu
        assert tpu is not None
        findings, problem = patrolled(tpu)
        assert problem is None
        return {finding.what: finding for finding in findings}

    def take_lease(self) -> None:
        """As a run does whose server then forgets whose it was."""
        self.client.upsert_global_concurrency_limit_by_name(LIMIT, 1)
        self.client.update_global_concurrency_limit(LIMIT, GlobalConcurrencyLimitUpdate(active_slots=1))

    @property
    def lease_taken(self) -> bool:
        return self.client.read_global_concurrency_limit_by_name(LIMIT).active_slots > 0

    def running(self, *tags: str) -> FlowRun:
        """A run that is said to be running."""
        return self.client.create_flow_run(tpu_patrol, state=Running(), tags=tags)

    def on_node(self) -> FlowRun:
        """A run on the node for which no flow waits."""
        deployment = self.client.read_deployment_by_name(DEPLOYMENT)
        return self.client.create_flow_run_from_deployment(deployment.id, state=Scheduled(), work_queue_name=NODE)

    def state(self, run: FlowRun) -> str | None:
        return self.client.read_flow_run(run.id).state_name


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes grounds: ``with ground(script, mode) as it``."""
    clock = TurnedClock(1_800_000_000.0)
    monkeypatch.setattr(patrol, "SYSTEM_CLOCK", clock)

    @contextlib.contextmanager
    def grounds(script: Script | None = None, mode: str = "repair", placement: str = "node") -> Iterator[Ground]:
        cloud = Cloud(clock, script or Script())
        with serving(cloud) as address, get_client(sync_client=True) as client:
            set_environment(monkeypatch, address, PATROL=mode, PLACEMENT=placement)
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name="tpu", type="process"))
            client.create_deployment(client.create_flow(stage_on_node), "tpu-stage", work_pool_name="tpu")
            Variable.unset(memory_of(NODE))
            _end_all_runs(client)
            client.upsert_global_concurrency_limit_by_name(LIMIT, 1)
            yield Ground(client, cloud, clock)
            client.update_global_concurrency_limit(LIMIT, GlobalConcurrencyLimitUpdate(active_slots=0))
            _end_all_runs(client)

    return grounds


def _end_all_runs(client: SyncPrefectClient) -> None:
    living = FlowRunFilter.model_validate({"state": {"type": {"not_any_": list(TERMINAL_STATES)}}})
    for run in client.read_flow_runs(flow_run_filter=living):
        client.delete_flow_run(run.id)


def test_a_node_is_stopped_when_no_run_has_used_it_for_the_time_that_is_set(ground: Any) -> None:
    with ground() as it:
        assert it.round()["node night"].case is PatrolCase.RESTING
        it.clock.turn(2 * HOUR)
        run, foreign = it.running(TAG), it.running("others")
        assert it.round()["node night"].case is PatrolCase.USED
        it.client.delete_flow_run(run.id)
        assert it.round()["node night"].case is PatrolCase.RESTING
        it.clock.turn(HOUR - 1)
        assert it.round()["node night"].case is PatrolCase.RESTING
        assert it.cloud.calls == []
        it.clock.turn(1)
        found = it.round()["node night"]
        assert (found.case, found.done) == (PatrolCase.IDLE, "stopped")
        assert it.cloud.calls == ["stop"]
        assert it.round()["node night"].case is PatrolCase.OFF
        assert not it.lease_taken
        assert it.state(foreign) == "Running"
        it.clock.turn(9 * HOUR)
        it.cloud.start_node(NODE)
        it.clock.turn(60)
        assert it.round()["node night"].case is PatrolCase.RESTING, "a person started it"


def test_a_round_for_another_node_does_not_change_since_when_this_one_is_unused(ground: Any) -> None:
    with ground() as it:
        it.cloud.add("other-node", it.cloud.script.life)
        tpu = settings.load().tpu
        assert tpu is not None
        for _ in range(3):
            for node in (NODE, "other-node"):
                patrolled(tpu.model_copy(update={"node": node}))
            it.clock.turn(HOUR / 3)
        it.cloud.stop_node("other-node")
        it.clock.turn(60)
        patrolled(tpu.model_copy(update={"node": "other-node"}))  # which costs nothing now, and is forgotten
        assert it.round()["node night"].case is PatrolCase.IDLE
        Variable.unset(memory_of("other-node"))


def test_nothing_is_stopped_while_it_cannot_be_seen_who_uses_it(ground: Any) -> None:
    """The server lacks the deployment, so the runs on the node cannot be listed; the lease may be taken or not."""
    with ground() as it:
        it.round()
        it.clock.turn(9 * HOUR)
        it.take_lease()
        deployment = it.client.read_deployment_by_name(DEPLOYMENT)
        it.client.delete_deployment(deployment.id)
        tpu = settings.load().tpu
        assert tpu is not None
        findings, problem = patrolled(tpu)
        assert [finding.case for finding in findings] == [PatrolCase.UNSEEN]
        assert isinstance(problem, errors.TpuSetupError)
        assert it.cloud.calls == []
        assert it.lease_taken


def test_a_node_that_a_flow_begins_to_use_is_not_stopped(ground: Any) -> None:
    with ground() as it:
        it.round()
        it.clock.turn(HOUR)
        with pytest.MonkeyPatch.context() as patch:
            # The flow takes the lease after the patrol has looked at it.
            patch.setattr(_Round, "_lease", lambda _self: iter([]))
            it.take_lease()
            assert it.round()["node night"].done == "not done: a run has begun to use it"
        assert it.cloud.calls == []


def test_a_spot_node_and_a_preempted_one_are_deleted_since_neither_can_be_stopped(ground: Any) -> None:
    with ground(Script(spot=True)) as it:
        it.round()
        it.clock.turn(HOUR)
        assert it.round()["node night"].done == "deleted"
        assert it.round()["node night"].seen == "there is none"
    with ground(Script(life=life("PREEMPTED"))) as it:
        assert (it.round()["node night"].case, it.cloud.calls) == (PatrolCase.GONE, ["delete"])


def test_a_request_that_waits_in_the_queue_for_no_run_is_deleted(ground: Any) -> None:
    with ground(Script(life=None, turns=(Attempt(9 * HOUR),))) as it:
        it.cloud.create_request(NODE, waiting_for(NODE))
        assert it.round()["node night"].case is PatrolCase.RESTING
        it.clock.turn(HOUR)
        assert it.round()["node night"].done == "deleted"
        assert it.cloud.calls == ["queue", "unqueue"]
        assert it.round()["node night"].seen == "there is none"


def waiting_for(name: str) -> tpu_v2.QueuedResource:
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id=name, node=tpu_v2.Node())
    return tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))


def test_a_lease_is_given_back_when_no_run_lives_that_could_have_it(ground: Any) -> None:
    with ground() as it:
        it.take_lease()
        run = it.running(TAG)
        assert "lease tpu-night" not in it.round()
        assert it.lease_taken
        it.client.delete_flow_run(run.id)
        assert it.round()["lease tpu-night"].done == "given back"
        assert not it.lease_taken


def test_by_default_it_only_tells(ground: Any) -> None:
    with ground(mode="report") as it:
        run = it.on_node()
        found = it.round()
        assert "tpu.patrol is report" in found[f"run {run.name}"].done
        assert found["node night"].case is PatrolCase.USED
        assert it.state(run) == "Scheduled"
        it.client.delete_flow_run(run.id)
        it.take_lease()
        it.round()
        it.clock.turn(2 * HOUR)
        found = it.round()
        assert all("tpu.patrol is report" in found[what].done for what in ("lease tpu-night", "node night"))
        assert it.lease_taken
        assert it.cloud.calls == []


def test_an_api_that_does_not_answer_fails_the_run_and_all_else_is_done(ground: Any) -> None:
    with ground(Script(outages=(Outage(0, 1e9),))) as it:
        run = it.on_node()
        with pytest.raises(errors.TpuApiError, match="unavailable"):
            tpu_patrol()
        assert it.state(run) == "Cancelled"
        # Without a filter, the server lists 200 of all artifacts.
        of_patrols = ArtifactFilter.model_validate({"key": {"any_": ["tpu-patrol"]}})
        tables = it.client.read_artifacts(artifact_filter=of_patrols)
        newest = max(tables, key=lambda artifact: artifact.created)
        assert "cancel it" in str(newest.data)


def by_hand(*options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["tpu", "patrol", *options])
    return int(ended.value.code or 0)


def test_a_round_by_hand_prints_what_it_found_or_what_is_missing_or_away(
    ground: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tpu_patrol() == [], "the schedule finds nothing without a TPU"
    assert by_hand() == 2
    assert "the settings name no TPU" in capsys.readouterr().err
    with ground(placement="here") as it:
        it.client.delete_deployment(it.client.read_deployment_by_name(DEPLOYMENT).id)  # models that run here need none
        assert by_hand("--json") == 0
    assert [finding["what"] for finding in json.loads(capsys.readouterr().out)] == ["node night"]
    with ground(), temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert by_hand() == 2
    assert "set PREFECT_API_URL" in capsys.readouterr().err
    away = {PREFECT_API_URL: "http://night:hush@127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with ground(), temporary_settings(away):
        assert by_hand() == 75
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("podline: error: the Prefect server http://***@127.0.0.1:1/api does not answer (")
