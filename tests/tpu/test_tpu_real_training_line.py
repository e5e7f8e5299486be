"""A real training behind the gate: its node gets unhealthy in the middle; the weights are those of a quiet night."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from standin.bench import bench
from standin.timeline import Script, life

from podline.beam_jobs.conversion import convert
from podline.data.sources.sample import write_sample
from podline.errors import TransientError
from podline.progress import Event, silent
from podline.recipes import registry
from podline.settings import Settings
from podline.stages.from_recipe import training_spec
from podline.stages.specs import ConvertSpec
from podline.store.opening import open_store
from podline.supervision.running import perform

TESTS = Path(__file__).resolve().parent.parent
STEPS = 150
CHANGES = {
    "duration.steps": STEPS,
    "batch_size": 16,
    "deterministic": True,
    "model.width": 0.1,
    "model.dropout": 0.2,
    "checkpoint_steps": 1000,
    "evaluate_every.epochs": 10,
}

pytestmark = pytest.mark.slow


def test_unhealthy_in_the_middle_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    drawn = write_sample(tmp_path / "drawn", train=300, test=100)
    quiet, disturbed = tmp_path / "quiet", tmp_path / "disturbed"
    quiet.mkdir()
    data = convert(ConvertSpec(root=str(quiet), dataset="sample", source=str(drawn)), silent())
    shutil.copytree(quiet, disturbed)
    recipe = registry.override(registry.get("sample"), CHANGES)

    def spec(root: Path) -> Any:
        return training_spec(open_store(str(root)), recipe, data.fingerprint, "cpu:2")

    # Healthy for three tells of progress; each turns the clock by a minute.
    script = Script(life=life("READY/HEALTHY 170, READY/UNHEALTHY_TENSORFLOW"))
    with bench(tmp_path, script) as it:
        machine = Settings(tpu=it.settings)

        def hear(event: Event) -> None:
            if event["event"] == "progress":
                it.clock.turn(60.0)

        with pytest.raises(TransientError, match="the node has been UNHEALTHY_TENSORFLOW"):
            perform(spec(disturbed), hear, machine, clock=it.clock)
        result = perform(spec(disturbed), hear, machine, attempt=2, clock=it.clock)
        assert [verb for _at, verb, _node in it.cloud.calls] == ["stop", "start"]
    assert len(result.resumed_from) == 1
    assert 0 < result.resumed_from[0] < STEPS
    undisturbed = perform(spec(quiet), silent_events, Settings())
    assert (undisturbed.run, undisturbed.steps, undisturbed.resumed_from) == (result.run, STEPS, ())
    assert undisturbed.weights_sha256 == result.weights_sha256
    assert json.loads((disturbed / result.folder / "tpu.json").read_text())["entries"]


def silent_events(_event: Event) -> None:
    """Nothing is told of the quiet night."""
