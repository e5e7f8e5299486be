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
from dying_runs import bare_metrics, lively_recipe
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import AnnealingLine, PlateauLine, StepsLine, read_events
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
    plateau = {"factor": 0.5, "patience": 1, "min_delta_share": 0.1}
    later = {"from_epoch": 10, "changes": {"batch_size": 8, "augmentation.image_size": 12}}
    recipe = lively_recipe(
        model={"kind": "resnet", "width": 0.1, "dropout": 0.2},
        batch_size=4,
        duration={"steps": 400},
        schedule={"kind": "plateau", "learning_rate": 0.3, "plateau": plateau},
        optimizer={"kind": "muon", "momentum": 0.6},
        precision="auto",
        annealing={"temperature": 0.01},
        validation_share=0.25,
        phases=(later,),
        augmentation={"flip": True, "alternate": True, "rand_augment": 1, "mixup": 0.2, "cutmix": 1},
        evaluate_every={"steps": 40},
        checkpoint_steps=3,  # so that some kills meet one that is being written
        summary_steps=5,
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
    assert bare_metrics(killed) == bare_metrics(unbroken)
    lines = read_metrics(killed / "metrics.jsonl")
    assert sum(len(line.losses) for line in lines if isinstance(line, StepsLine)) == 400
    assert {line.accepted for line in lines if isinstance(line, AnnealingLine)} == {True, False}
    assert any(line.lowered for line in lines if isinstance(line, PlateauLine))
    events = [event.event for event in read_events(killed / "events.jsonl")]
    assert events.count("restored") + events.count("started") == KILLS + 1
    assert not list((tmp_path / "killed" / ".podline" / "tmp").iterdir()), "what the killed left behind is gone"
