"""A training as a job of two nodes, as the train task follows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import job_clusters
import pytest
from prefect_servers import wait_until
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import read_events
from podline.errors import PermanentError, SettingsError
from podline.progress import Event
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe
from podline.settings import Settings
from podline.stages.specs import TrainSpec
from podline.supervision.job import run_as_job
from podline.supervision.schedulers import Job


def spec_of(root: str, batch_size: int = 8) -> TrainSpec:
    recipe = Recipe(
        name="t",
        dataset="sample",
        model=ModelSettings(kind="linear"),
        batch_size=batch_size,
        evaluation_batch_size=16,
        duration=Duration(steps=200),
        checkpoint_steps=20,
        summary_steps=1,
    )
    return TrainSpec(root=root, recipe=recipe, fingerprint=FINGERPRINT)


def at_progress(act: Callable[[], object]) -> Callable[[Event], None]:
    """A listener that acts at the first step."""
    acted: list[object] = []

    def listener(event: Event) -> None:
        if event["event"] == "progress" and not acted:
            acted.append(True)
            act()

    return listener


def interrupted() -> None:
    raise KeyboardInterrupt


def test_a_store_in_a_bucket_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"launch=slurm: got root=gs://bucket/a, expected a folder that all hosts"):
        run_as_job(spec_of("gs://bucket/a"), lambda _event: None, Settings(launch="slurm"), lambda: False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", job_clusters.ALL)
@pytest.mark.usefixtures("in_children")
def test_a_job_goes_on_where_its_flow_does_and_ends_where_it_ends(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_dataset(root := tmp_path / "a root")
    spec = spec_of(str(root))
    (tmp_path / "cluster").mkdir()
    with job_clusters.ALL[kind](tmp_path / "cluster") as cluster:
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        scheduler, machine = cluster.scheduler, cluster.machine

        def newest() -> Job:
            job = scheduler.find(spec.run, str(root))
            assert job is not None
            return job

        with pytest.raises(KeyboardInterrupt):
            run_as_job(spec, at_progress(interrupted), machine, lambda: True)
        first = newest()
        assert first.goes_on
        cancelled = rf"job {first.number} of {scheduler.NAME} was cancelled; what it had saved is"
        with pytest.raises(PermanentError, match=cancelled):
            run_as_job(spec, at_progress(lambda: scheduler.cancel(first.number)), machine, lambda: True)
        assert read_events(root / spec.folder / "events.jsonl")[-1].event == "preempted"

        with pytest.raises(KeyboardInterrupt):
            run_as_job(spec, at_progress(interrupted), machine, lambda: False)
        second = newest()
        assert second.number != first.number
        wait_until(lambda: not newest().goes_on)

        events: list[Event] = []
        result = run_as_job(spec, events.append, machine, lambda: False)
        assert newest().state == "COMPLETED"
        messages = [event["message"] for event in events if event["event"] == "log"]
        start = f"submitted job {newest().number} of {scheduler.NAME}, {spec.run}; it prints to "
        assert messages[0].startswith(start)
        assert any("goes on from step" in message or "checkpoint" in message for message in messages), messages
        assert events[-1]["event"] == "result"
        assert (result.reused, [event["event"] for event in events].count("start")) == (False, 1)

        # Slurm starts the hosts first; with Ray, a number of hosts is chosen before.
        by_hosts = "strategy=workers: got 2 hosts and batch_size=9, expected hosts that"
        by_number = "got batch_size=9, expected a multiple of a number of hosts in hosts=2; change either"
        with pytest.raises(SettingsError, match=by_hosts if kind == "slurm" else by_number):
            run_as_job(spec_of(str(root), batch_size=9), lambda _event: None, machine, lambda: False)
