"""Of nights the latest is done, what began each is in the ledger, and a schedule whose nights fail is paused."""

from __future__ import annotations

import logging
import shutil
import uuid
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions, FlowRun
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import CancelledRun
from prefect.flow_engine import run_flow
from prefect.states import Crashed, Running, Scheduled
from prefect_servers import artifacts_of, lines_of
from small_flow_stages import ran
from waiting import wait_until

from podline.base.progress import Event
from podline.data.sources.sample import write_sample
from podline.flows.training import training
from podline.ledger.ledger import entries, names
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.tasks import run
from podline.tasks.run import index_afterwards

ALL = ["convert", "validate", "train", "evaluate", "report"]


class Nightly:
    """A deployment with a schedule, and its runs, which are done here, in the order that a test says."""

    def __init__(self, client: SyncPrefectClient, parameters: dict[str, Any]) -> None:
        self.client, self.root, self.parameters = client, Path(parameters["machine"]["root"]), parameters
        pool = f"pool-{uuid.uuid4()}"
        client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        self.deployment = client.create_deployment(
            client.create_flow_from_name("training"),
            f"night-{uuid.uuid4()}",
            schedules=[DeploymentScheduleCreate(schedule=CronSchedule(cron="15 1 * * *", timezone="UTC"), active=True)],
            concurrency_limit=1,
            concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.ENQUEUE),
            parameters={"parameters": parameters},
            work_pool_name=pool,
            tags=["podline"],
        )

    def night(self, days_ago: int) -> UUID:
        """A run that the schedule makes, which was due so many days ago, or up to a day later, and has not begun."""
        start = datetime.now(UTC) - timedelta(days=days_ago)
        body = {"start_time": f"{start}", "end_time": f"{start + timedelta(days=1)}", "max_runs": 1}
        before = {run.id for run in self._runs()}
        self.client._client.post(f"/deployments/{self.deployment}/schedule", json=body).raise_for_status()
        [made] = [run for run in self._runs() if run.id not in before]
        assert made.auto_scheduled
        return made.id

    def _runs(self) -> list[FlowRun]:
        ours = {"deployment_id": {"any_": [self.deployment]}, "expected_start_time": {"before_": datetime.now(UTC)}}
        return self.client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(ours))

    def by_hand(self, **more: Any) -> UUID:
        """A run that a person starts, due long ago."""
        due = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(days=30))
        parameters = {"parameters": self.parameters | more}
        return self.client.create_flow_run_from_deployment(self.deployment, parameters=parameters, state=due).id

    def by_event(self) -> UUID:
        """A run made as the server's automations do it."""
        headers = {"Prefect-Automation-ID": f"{uuid.uuid4()}", "Prefect-Automation-Name": b64encode(b"data").decode()}
        made = self.client._client.post(f"/deployments/{self.deployment}/create_flow_run", json={}, headers=headers)
        return UUID(made.raise_for_status().json()["id"])

    def do(self, run: UUID) -> FlowRun:
        """Runs it in this process, as its own process would; answers how it is then."""
        flow_run = self.client.read_flow_run(run)
        run_flow(training, flow_run, parameters=flow_run.parameters, return_type="state")
        return self.client.read_flow_run(run)

    def retry(self, run: UUID) -> FlowRun:
        """As the button Retry does it."""
        self.client.set_flow_run_state(run, Scheduled(name="AwaitingRetry"))
        return self.do(run)

    def active(self) -> bool:
        [schedule] = self.client.read_deployment(self.deployment).schedules
        return schedule.active

    def artifact(self, run: UUID, kind: str) -> Any:
        return artifacts_of(self.client, run)[f"sample-{kind}"]

    def wait_for_line(self, run: UUID, text: str) -> None:
        wait_until(lambda: any(text in message for _, message in lines_of(self.client, run)), every=0.2)


@pytest.fixture
def it(tmp_path: Path, prefect_server: None, small_stages: None, stages_here: None) -> Iterator[Nightly]:
    """A deployment of the flow with small stages; its root is an empty folder."""
    write_sample(tmp_path / "drawn", train=50, test=20)
    (tmp_path / "root").mkdir()
    given = {
        "recipe": "sample",
        "source": str(tmp_path / "drawn"),
        "machine": {"root": str(tmp_path / "root")},
        "training": {"steps": 1},
    }
    with get_client(sync_client=True) as client:
        yield Nightly(client, given)


def test_of_nights_that_were_missed_the_latest_is_done_and_no_other(it: Nightly) -> None:
    first, second, third = it.night(5), it.night(4), it.night(3)
    assert it.do(first).state_name == "Cancelled"
    done = it.do(third)
    assert done.state_name == "Completed"
    gave_way = it.do(second)
    assert gave_way.state_name == "Cancelled"
    assert f"replaced by the later night that was due at {done.expected_start_time:%F %T}" in gave_way.state.message
    assert ran(str(it.root)) == ALL
    assert {"podline", "sample"} <= set(done.tags)

    # What a person starts is done. Nothing new since: it says so.
    unchanged = it.do(it.by_hand())
    assert unchanged.state_name == "Completed"
    assert ran(str(it.root)) == ALL
    assert "unchanged" in unchanged.tags
    assert "unchanged" not in done.tags
    [trained] = it.root.glob("runs/*")
    report = it.artifact(unchanged.id, "report")
    assert report.description.startswith(f"Unchanged since {trained.name}, {datetime.now(UTC):%Y-}")
    assert f"Unchanged since {trained.name}" in report.data
    assert "# It went well" in report.data
    assert "Unchanged" not in it.artifact(done.id, "report").data
    figures = it.artifact(unchanged.id, "key-figures").data
    assert f"| re-used | {', '.join(ALL)} |" in figures
    assert "| promotion | not asked for |" in figures
    card = it.artifact(unchanged.id, "progress")
    assert card.data.startswith("Open the report: ")
    assert card.description == report.description
    it.wait_for_line(unchanged.id, f"unchanged since {trained.name}")
    it.wait_for_line(done.id, f"the report: {trained}/report.html")


def test_a_run_whose_form_is_refused_has_a_card_with_the_cause_and_advice(it: Nightly) -> None:
    refused = it.do(it.by_hand(epochs=-1))
    assert refused.state_name == "Failed"
    assert "Epochs = -1" in refused.state.message
    card = it.artifact(refused.id, "progress").data
    assert card.startswith("**Failed.** ")
    assert "\n\n**What to do:** " in card


def test_the_ledger_says_what_began_a_run_and_the_index_tells_nights_from_other_runs(it: Nightly) -> None:
    fails = it.root / "fail-evaluation"
    fails.touch()
    failed = it.night(5)
    assert it.do(failed).state_name == "Failed"
    assert (it.root / "index.html").is_file()
    fails.unlink()
    assert it.retry(failed).state_name == "Completed"
    # What failed is done again, and only that.
    assert ran(str(it.root)) == ["convert", "validate", "train", "evaluate", "evaluate", "report"]
    assert it.do(it.by_hand()).state_name == "Completed"
    crashed = it.night(4)
    it.client.set_flow_run_state(crashed, Running())
    it.client.set_flow_run_state(crashed, Crashed(message="its machine is gone"))
    assert it.retry(crashed).state_name == "Completed"
    waits, by_event = it.by_event(), it.by_event()
    assert it.do(waits).state_name == "Cancelled"
    done = it.do(by_event)
    assert (done.state_name, done.name.split()[0]) == ("Completed", "sample")

    name = it.client.read_deployment(it.deployment).name
    store = open_store(it.root)
    found = [*entries(store, names(store))]
    [of_failed] = [entry for entry in found if entry.state == "failed"]
    assert (of_failed.error, list(of_failed.stages)) == ("ArtifactError", ["convert", "validate", "train"])
    assert "not what it was" in of_failed.cause
    assert sorted((entry.started, entry.schedule, entry.state) for entry in found) == [
        ("event", name, "finished"),
        ("hand", "", "finished"),
        ("retry", name, "finished"),
        ("schedule", name, "failed"),
        # It crashed, and began again: it is the same night.
        ("schedule", name, "finished"),
    ]
    page = (it.root / "index.html").read_text()
    assert "3 nights" in page
    assert "2 other runs" in page


@pytest.mark.slow
def test_three_failures_in_a_row_pause_the_schedule(it: Nightly) -> None:
    fails = it.root / "fail-evaluation"
    fails.touch()
    assert it.do(it.night(20)).state_name == "Failed"
    fails.unlink()
    assert it.do(it.night(18)).state_name == "Completed"
    fails.touch()
    next(it.root.glob("runs/*/evaluation.json")).unlink()

    def fail_three_times(days_ago: int) -> None:
        for number in range(3):
            assert it.active()
            assert it.do(it.night(days_ago - 2 * number)).state_name == "Failed"
        assert not it.active()

    fail_three_times(16)
    [last, *_] = sorted(it._runs(), key=lambda each: each.expected_start_time, reverse=True)
    it.wait_for_line(last.id, "3 nights in a row failed")
    # A person switches it on again, with the cause not corrected: as many failures count anew.
    [schedule] = it.client.read_deployment(it.deployment).schedules
    it.client.update_deployment_schedule(it.deployment, schedule.id, active=True)
    fail_three_times(10)


@pytest.mark.slow
def test_from_a_stage_on_it_runs_again_and_a_retry_does_not_repeat_that(it: Nightly) -> None:
    assert it.do(it.by_hand()).state_name == "Completed"
    assert ran(str(it.root)) == ALL

    again = it.by_hand(start_from="train")
    fails = it.root / "fail-evaluation"
    fails.touch()
    assert it.do(again).state_name == "Failed"
    assert ran(str(it.root)) == [*ALL, "train", "evaluate"]
    fails.unlink()
    assert it.retry(again).state_name == "Completed"
    assert ran(str(it.root)) == [*ALL, "train", "evaluate", "evaluate", "report"]

    # What comes before it is used again, or made if it is not there.
    shutil.rmtree(next(it.root.glob("datasets/sample/*")))
    (it.root / "ran").unlink()
    assert it.do(it.by_hand(start_from="report")).state_name == "Completed"
    assert ran(str(it.root)) == ["convert", "validate", "report"]


def test_a_night_that_gives_way_leaves_no_traceback_in_its_log() -> None:
    log = logging.getLogger("prefect.flow_runs")
    needless = CancelledRun("replaced by the later night that was due at …")
    record = log.makeRecord(log.name, logging.ERROR, "", 0, "unexpected", (), (CancelledRun, needless, None))
    assert not log.filter(record)
    bug = log.makeRecord(log.name, logging.ERROR, "", 0, "unexpected", (), (ValueError, ValueError("a bug"), None))
    assert log.filter(bug)


def test_an_index_that_cannot_be_written_fails_nothing_and_a_cancelled_run_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt), index_afterwards(FolderStore(tmp_path)):
        raise KeyboardInterrupt
    index = tmp_path / "index.html"
    assert not index.exists()
    index.mkdir()
    told: list[Event] = []
    monkeypatch.setattr(run, "stage_listener", lambda _stage: told.append)
    with index_afterwards(FolderStore(tmp_path)):
        pass
    assert "the index of nights is not up to date" in str(told)
