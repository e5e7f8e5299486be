"""A real training behind the gate: its node gets unhealthy in the middle; the weights are those of a quiet night."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from nights import EVENING, TESTS, hurry, night
from standin.timeline import Script, life

from podline.data.sources.sample import write_sample
from podline.settings import Settings
from podline.stages.from_recipe import training_spec
from podline.stages.specs import TrainResult
from podline.store.opening import open_store
from podline.supervision.running import perform
from podline.tasks.node import tpu_lease
from podline.tasks.parameters import MachineGroup, TrainingForm, TrainingGroup

STEPS = 400

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]


def test_unhealthy_in_the_middle_ends_with_the_same_weights_and_the_report_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    hurry(monkeypatch)
    write_sample(tmp_path / "drawn", train=300, test=100)
    parameters = TrainingForm(
        recipe="sample",
        source=str(tmp_path / "drawn"),
        training=TrainingGroup(
            steps=STEPS,
            batch_size=16,
            assignments=(
                "deterministic=true",
                "model.width=0.1",
                "model.dropout=0.2",
                "checkpoint_steps=1000",
                "evaluate_every.epochs=10",
            ),
        ),
        machine=MachineGroup(root=str(tmp_path / "root"), strategy="cpu:2"),
    )
    tpu_lease.make_limit()
    # Healthy for three tells of progress; each turns the clock by a minute.
    script = Script(life=life("READY/HEALTHY 170, READY/UNHEALTHY_TENSORFLOW"))
    with night(tmp_path, monkeypatch, script, parameters, turn=60.0) as it:
        it.run()
        assert it.events == ["go", "leave", "wait", "restart", "go", "leave"]
        assert it.verbs() == ["stop", "start"]

    (folder,) = it.root.glob("runs/*")
    disturbed = TrainResult.model_validate(json.loads((folder / "stages/train.json").read_bytes())["result"])
    assert len(disturbed.resumed_from) == 1
    assert 0 < disturbed.resumed_from[0] < STEPS
    (data,) = it.root.glob("datasets/sample/*")
    shutil.copytree(it.root / "datasets", tmp_path / "quiet" / "datasets")
    quiet_store = open_store(tmp_path / "quiet")
    spec = training_spec(quiet_store, parameters.training_recipe(), data.name, parameters.machine.strategy)
    quiet = perform(spec, lambda _event: None, Settings())
    assert (quiet.run, quiet.steps, quiet.resumed_from) == (disturbed.run, STEPS, ())
    assert quiet.weights_sha256 == disturbed.weights_sha256

    markdown, page = (folder / "report.md").read_text(), (folder / "report.html").read_text()
    for report in (markdown, page):
        tpu_log = report[report.index("The TPU") :]
        for told in ("UNHEALTHY_TENSORFLOW", "restart", "the next attempt goes on", "2027-01-15 08:0"):
            assert told in tpu_log, tpu_log
    assert it.clock.now() > EVENING + 1200, "it was waited for before it was restarted"
