"""A run whose store is a bucket, killed at random moments, on one machine and then on another."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_dataset import FINGERPRINT, publish_dataset

from podline.documents.metrics_log import StepsLine, read_metrics
from podline.inventory.verification import verify
from podline.progress import Reporter
from podline.recipes.durations import Duration
from podline.recipes.settings import ModelSettings, Recipe
from podline.stages.specs import TrainSpec
from podline.store.opening import open_store

TRAIN = """
import json
import sys
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.training.train import train

train(TrainSpec.model_validate_json(sys.argv[1]), Reporter("train", lambda event: print(json.dumps(event), flush=True)))
"""
STEPS = 120


def spec_of(root: str) -> TrainSpec:
    publish_dataset(root)
    recipe = Recipe(
        name="t",
        dataset="sample",
        model=ModelSettings(kind="resnet", width=0.1),
        batch_size=4,
        duration=Duration(steps=STEPS),
        checkpoint_steps=3,
        summary_steps=5,
        deterministic=True,
    )
    return TrainSpec(root=root, recipe=recipe, fingerprint=FINGERPRINT)


def trained(spec: TrainSpec, cache: Path, kill_at: int | None = None) -> None:
    """Trains, and ends it with SIGKILL a moment after it has told of a step."""
    command = [sys.executable, "-c", TRAIN, spec.model_dump_json()]
    with (
        (cache.parent / "log").open("a+") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PODLINE_STORE_CACHE": str(cache)},
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if kill_at is not None and event["event"] == "progress" and event["done"] >= kill_at:
                time.sleep(random.uniform(0, 0.2))
                process.send_signal(signal.SIGKILL)
                break
        process.wait(280)
    expected = 0 if kill_at is None else -signal.SIGKILL
    assert process.returncode == expected, (cache.parent / "log").read_text()[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_with_the_root_in_a_bucket_changes_nothing_in_the_end(tmp_path: Path, gcs_root: str) -> None:
    here, there = spec_of(str(tmp_path / "root")), spec_of(f"{gcs_root}root")
    trained(here, tmp_path / "cache")
    first, second = sorted(random.sample(range(5, STEPS - 60), 2))
    trained(there, tmp_path / "cache", first)
    trained(there, tmp_path / "cache", second)  # the same machine goes on
    trained(there, tmp_path / "another")  # another one knows what is in the bucket
    ours, theirs = open_store(there.root), open_store(here.root)
    assert ours.sha256(f"{there.folder}/model/weights.npz") == theirs.sha256(f"{here.folder}/model/weights.npz")
    steps, expected = (
        [line for line in read_metrics(store.local(f"{spec.folder}/metrics.jsonl")) if isinstance(line, StepsLine)]
        for store, spec in ((ours, there), (theirs, here))
    )
    assert [line.losses for line in steps] == [line.losses for line in expected]
    assert sum(len(line.losses) for line in steps) == STEPS
    assert verify(ours, Reporter("store", lambda _event: None))[1] == []
