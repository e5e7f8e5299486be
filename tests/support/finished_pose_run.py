"""A pose network's run that is done, as its stages leave it, made up in seconds."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from finished_run import publish_evaluation, publish_training
from ledger_entries import NOON
from metrics import evaluation_line, steps_line
from pose_oracle import RECIPE, case_of, nothing, perfect
from small_coco import publish_people

from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import EventLine
from podline.kinds.pose.judging import judge
from podline.stages.specs import EvaluateSpec, ReportSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store

STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")


Answers = Callable[[Any], Iterator[Any]]


def shaken(batches):
    """Answers that are nearly right: noise, and one image in three is not looked at."""
    random = np.random.default_rng(0)
    for (heatmaps, pafs), fields in perfect(batches):
        blind = fields["image_id"][:, 0] % 3 == 0
        noisy = np.clip(heatmaps + 0.04 * random.standard_normal(heatmaps.shape), 0, 1).astype(np.float32)
        noisy[blind] = 0
        yield (noisy, pafs + (0.05 * random.standard_normal(pafs.shape)).astype(np.float32)), fields


def finished_pose_run(root: Path, answers: Answers = shaken, split: str = "test", seed: int = 0) -> ReportSpec:
    """Put people and a trained, evaluated run into a store; data and evaluation are made once and copied."""
    shutil.copytree(_people(), root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".podline"))
    store = open_store(root)
    recipe = RECIPE.model_copy(update={"seed": seed})
    found, manifest = _judged(answers, split)
    train = TrainSpec(root=str(root), recipe=recipe, fingerprint=manifest.fingerprint)
    _trained(store, train)
    spec = _evaluate_spec(root, train, manifest, split)
    for name, data in found.files.items():
        store.publish_bytes(f"{spec.record_folder}/{name}", data)
    document = found.document.model_copy(update={"run": train.run})
    return publish_evaluation(store, spec, document, "podline train coco_pose --root podline-root")


@functools.cache
def _people() -> Path:
    made = Path(tempfile.mkdtemp(prefix="pose-run-"))
    atexit.register(shutil.rmtree, made)
    publish_people(made)
    return made


@functools.cache
def _judged(answers: Answers, split: str) -> tuple[Any, Manifest]:
    store = open_store(_people())
    [folder] = store.folders("datasets/coco_sample")
    manifest = read_manifest(store, folder)
    train = TrainSpec(root=store.uri, recipe=RECIPE, fingerprint=manifest.fingerprint)
    spec = _evaluate_spec(_people(), train, manifest, split)
    return judge(case_of(spec, RECIPE, store, manifest), nothing, answers), manifest


def _evaluate_spec(root: Path, train: TrainSpec, manifest: Manifest, split: str) -> EvaluateSpec:
    return EvaluateSpec(
        root=open_store(root).uri,
        run=train.run,
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        weights_sha256="ab" * 32,
        split=split,
        batch_size=4,
    )


def _trained(store: Store, spec: TrainSpec) -> None:
    random = np.random.default_rng(1)
    lines = []
    for step in range(20, 601, 20):
        loss = 4 * np.exp(-step / 150) + 0.4 + 0.03 * random.standard_normal()
        measures = {}
        for place, stage in enumerate(STAGES):
            share = 1 - np.exp(-step / (120 + 40 * place))
            measures |= {
                f"{stage}/loss": loss / (place + 2),
                f"{stage}/magnitude": 0.9 * share,
                f"{stage}/recall": share,
                f"{stage}/island_recall": 0.95 * share,
                f"{stage}/error": 0.02 / (1 + 3 * share),
            }
        now = {"epoch": step / 30, "time": NOON + step * 0.5, "measures": measures, "accuracy": np.nan}
        values = {"learning_rate": 0.002 * min(step / 60, (620 - step) / 540), "losses": (loss,) * 20}
        values |= {"gradient_norm": loss, "gradient_norms": {"neck1": loss}, "seconds": step * 0.5}
        speed = 30 + random.standard_normal()
        lines.append(steps_line(step, loss, **values, **now, examples_per_second=speed))
        if step % 200 == 0:
            lines.append(evaluation_line(step, 1.2 * loss, split="test", examples=7, **now))
    events = [
        EventLine(time=NOON, event="started", step=0, message="training from fresh weights"),
        EventLine(time=NOON + 300, event="finished", step=600, message="all 600 steps are done"),
    ]
    speed = {"seconds": 300.0, "examples_per_second": 30.2, "waiting_for_input": 0.01}
    publish_training(store, spec, lines, events, steps=600, epochs=20.0, examples=2_400, loss=0.41, **speed)
