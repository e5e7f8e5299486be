"""A run that is killed at any moment ends with the bits of one that is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import AnnealingLine, PlateauLine, StepsLine, read_events
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.schedule_settings import PlateauSettings
from podline.recipes.settings import (
    AnnealingSettings,
    AugmentationSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    ScheduleSettings,
)
from podline.stages.specs import TrainSpec
from tests.support.metrics import read_metrics

TRAIN = """
import json
import sys
from podline.input.pipeline import TrainingInput
from podline.base.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.training.train import train

read = TrainingInput.read


def noted(self, step, *part):
    epoch, ids, arrays = read(self, step, *part)
    with open(sys.argv[2], "a") as file:
        file.write(f"{step} {epoch} {ids.tolist()}\\n")
    return epoch, ids, arrays


TrainingInput.read = noted
train(TrainSpec.model_validate_json(sys.argv[1]), Reporter("train", lambda event: print(json.dumps(event), flush=True)))
"""
KILLS = 4


def spec_of(root: Path) -> TrainSpec:
    """All at once: a plateau, annealing, an average, batches that change, mixed pairs, Muon's moments."""
    publish_dataset(root)
    recipe = Recipe(
        name="t",
        dataset="sample",
        model=ModelSettings(kind="resnet", width=0.1, dropout=0.2),
        batch_size=4,
        duration=Duration(steps=400),
        schedule=ScheduleSettings(
            kind="plateau", learning_rate=0.3, plateau=PlateauSettings(factor=0.5, patience=1, min_delta_share=0.1)
        ),
        optimizer=OptimizerSettings(kind="muon", momentum=0.6),
        precision="auto",
        annealing=AnnealingSettings(temperature=0.01),
        validation_share=0.25,
        phases=(PhaseSettings(from_epoch=10, changes={"batch_size": 8, "augmentation.image_size": 12}),),
        augmentation=AugmentationSettings(flip=True, alternate=True, rand_augment=1, mixup=0.2, cutmix=1),
        ema_decay=0.9,
        evaluate_every=Duration(steps=40),
        checkpoint_steps=3,  # so that some kills meet one that is being written
        summary_steps=5,
        deterministic=True,
    )
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT)


def start(spec: TrainSpec) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAIN, spec.model_dump_json(), str(Path(spec.root).with_suffix(".ids"))]
    with log_of(spec).open("a") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)


def log_of(spec: TrainSpec) -> Path:
    return Path(spec.root).with_suffix(".log")


def ids_of(spec: TrainSpec) -> dict[int, str]:
    """The ids of each step's batch; a step that was taken more than once had the same ones each time."""
    lines = Path(spec.root).with_suffix(".ids").read_text().splitlines()
    read = {(int(step), ids) for step, ids in (line.split(" ", 1) for line in lines if line.endswith("]"))}
    steps = dict(read)
    assert len(steps) == len(read)
    return steps


def kill_after(spec: TrainSpec, step: int, delay: float) -> None:
    """Starts training and ends it with SIGKILL a moment after it has told of a step."""
    with start(spec) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and event["done"] >= step:
                time.sleep(delay)
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL, log_of(spec).read_text()[-2000:]


def finish(spec: TrainSpec) -> Path:
    with start(spec) as process:
        process.communicate(timeout=280)
    assert process.returncode == 0, log_of(spec).read_text()[-2000:]
    return Path(spec.root) / spec.folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_random_moments_changes_nothing_in_the_end(tmp_path: Path):
    undisturbed = spec_of(tmp_path / "unbroken")
    unbroken = finish(undisturbed)
    spec = spec_of(tmp_path / "killed")
    random = np.random.default_rng()
    for step in np.sort(random.integers(1, 350, KILLS)):
        kill_after(spec, int(step), float(random.uniform(0, 0.2)))
    killed = finish(spec)
    assert (killed / "model" / "weights.npz").read_bytes() == (unbroken / "model" / "weights.npz").read_bytes()
    assert ids_of(spec) == ids_of(undisturbed)
    # Down to the bit, losses of every step, no gap and no repeat; only what a clock says may differ.
    clock = {"seconds", "spans", "time", "examples_per_second", "waiting"}
    lines = [read_metrics(folder / "metrics.jsonl") for folder in (unbroken, killed)]
    assert [line.model_dump(exclude=clock) for line in lines[0]] == [
        line.model_dump(exclude=clock) for line in lines[1]
    ]
    assert sum(len(line.losses) for line in lines[1] if isinstance(line, StepsLine)) == 400
    assert {line.accepted for line in lines[1] if isinstance(line, AnnealingLine)} == {True, False}
    assert any(line.lowered for line in lines[1] if isinstance(line, PlateauLine))
    events = [event.event for event in read_events(killed / "events.jsonl")]
    assert events.count("restored") + events.count("started") == KILLS + 1
    assert not list((tmp_path / "killed" / ".podline" / "tmp").iterdir()), "what the killed left behind is gone"
