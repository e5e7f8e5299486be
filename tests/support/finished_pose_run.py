"""A pose network's run that is done, as its stages leave it, made up in seconds."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from evaluation_case import case_of
from ledger_entries import night
from pose_oracle import RECIPE, nothing, perfect
from small_coco import publish_people

from podline.documents.ledger_entry import Entry
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metrics_log import EvaluationLine, EventLine, StepsLine
from podline.inventory.catalogue import training_of
from podline.kinds.pose.judging import judge_answers
from podline.kinds.table import read_evaluation
from podline.ledger import ledger
from podline.ledger.recording import outcome_of, plain
from podline.stages.completed import complete
from podline.stages.specs import EvaluateResult, EvaluateSpec, ReportSpec, TrainResult, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store

NOON = 1_795_262_400.0
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
    """Put people and a trained, evaluated run into a store; data and judgement are made once and copied.

    Args:
        root: of the store.
        answers: what the network says.
        split: what it was judged on.
        seed: of the training; another one is another run on the same data, judged alike.
    """
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
    name = f"{spec.record_folder}/evaluation.json"
    store.publish_json(name, document.model_dump(mode="json"))
    result = EvaluateResult(
        seconds=12.3,
        run=train.run,
        dataset=spec.dataset,
        examples=document.examples,
        metrics=document.trained.metrics,
        measure="ap",
        untrained=0.0,
        evaluation_sha256=store.sha256(name),
    )
    complete(store, spec.record_folder, spec, result, [name])
    return ReportSpec(
        root=store.uri,
        run=train.run,
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        split=split,
        evaluation_sha256=result.evaluation_sha256,
        command="podline train coco_pose --root podline-root",
    )


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
    return judge_answers(case_of(spec, RECIPE, store, manifest), nothing, answers), manifest


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
        lines.append(
            StepsLine(
                step=step,
                epoch=step / 30,
                loss=loss,
                learning_rate=0.002 * min(step / 60, (620 - step) / 540),
                gradient_norm=loss,
                gradient_norms={"neck1": loss},
                examples_per_second=30 + random.standard_normal(),
                waiting=0.01,
                seconds=step * 0.5,
                time=NOON + step * 0.5,
                losses=(loss,) * 20,
                measures=measures,
            )
        )
        if step % 200 == 0:
            lines.append(
                EvaluationLine(
                    step=step,
                    epoch=step / 30,
                    split="test",
                    examples=7,
                    loss=1.2 * loss,
                    seconds=1.0,
                    time=NOON + step * 0.5,
                    measures=measures,
                )
            )
    events = [
        EventLine(time=NOON, event="started", step=0, message="training from fresh weights"),
        EventLine(time=NOON + 300, event="finished", step=600, message="all 600 steps are done"),
    ]
    for name, entries in (("metrics.jsonl", lines), ("events.jsonl", events)):
        text = "".join(json.dumps(entry.model_dump(mode="json")) + "\n" for entry in entries)
        store.publish_bytes(f"{spec.folder}/{name}", text.encode())
    store.publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"))
    result = TrainResult(
        seconds=300.0,
        run=spec.run,
        folder=spec.folder,
        steps=600,
        epochs=20.0,
        examples=2_400,
        parameters=412_310,
        weights_sha256="ab" * 32,
        loss=0.41,
        examples_per_second=30.2,
        waiting_for_input=0.01,
    )
    complete(store, spec.folder, spec, result, [])


def entered(spec: ReportSpec, number: int) -> Entry:
    """Puts the entry of a finished run into the ledger, of the night with this number."""
    store = open_store(spec.root)
    evaluation = read_evaluation(store, spec.folder)
    entry = night(
        number, recipe=RECIPE.name, run=spec.run, outcome=outcome_of(evaluation, 1, 1, spec.evaluation_sha256)
    )
    data = night().data.model_copy(update={"dataset": spec.dataset, "fingerprint": spec.fingerprint})
    settings = {"recipe": plain(training_of(store, spec.run).recipe), "machine": {}}
    ledger.publish(store, entry.model_copy(update={"data": data, "settings": settings}))
    return ledger.read(store, entry.name)
