"""A training as a job of a Slurm of two nodes, as the train task follows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import slurm_cluster
from free_ports import free_ports
from small_dataset import FINGERPRINT, publish_dataset

from podline.errors import PermanentError, SettingsError
from podline.progress import Event
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe
from podline.settings import Settings
from podline.stages.specs import TrainSpec
from podline.supervision import slurm
from podline.supervision.job import run_as_job

MACHINE = Settings(launch="slurm", hosts="2")


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
        run_as_job(spec_of("gs://bucket/a"), lambda _event: None, MACHINE, lambda: False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"needs {', '.join(slurm_cluster.missing())}")
@pytest.mark.usefixtures("in_children")
def test_a_job_goes_on_where_its_flow_does_and_ends_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_dataset(root := tmp_path / "a root")
    spec = spec_of(str(root))
    (tmp_path / "slurm").mkdir()
    with slurm_cluster.slurm(tmp_path / "slurm", free_ports(3)) as environment:
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])

        def newest() -> slurm.Job:
            job = slurm.find(spec.run, str(root))
            assert job is not None
            return job

        with pytest.raises(KeyboardInterrupt):
            run_as_job(spec, at_progress(interrupted), MACHINE, lambda: True)
        first = newest()
        assert first.goes_on
        with pytest.raises(PermanentError, match=rf"job {first.number} of Slurm was cancelled; what it had saved is"):
            run_as_job(spec, at_progress(lambda: slurm.cancel(first.number)), MACHINE, lambda: True)

        with pytest.raises(KeyboardInterrupt):
            run_as_job(spec, at_progress(interrupted), MACHINE, lambda: False)
        second = newest()
        assert second.number != first.number
        assert not second.goes_on

        events: list[Event] = []
        result = run_as_job(spec, events.append, MACHINE, lambda: False)
        assert newest().state == "COMPLETED"
        messages = [event["message"] for event in events if event["event"] == "log"]
        assert messages[0].startswith(f"submitted job {newest().number} of Slurm, {spec.run}; it prints to {root}/")
        assert any("goes on from step" in message or "checkpoint" in message for message in messages), messages
        assert events[-1]["event"] == "result"
        assert (result.reused, [event["event"] for event in events].count("start")) == (False, 1)

        with pytest.raises(SettingsError, match="strategy=workers: got 2 hosts and batch_size=9, expected hosts that"):
            run_as_job(spec_of(str(root), batch_size=9), lambda _event: None, MACHINE, lambda: False)
