"""A run that is done, as its stages leave it, made up in milliseconds: what the report has to work with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ledger_entries import CLASSES as CIFAR_NAMES
from ledger_entries import NOON, night
from metrics import evaluation_line, steps_line, train_result
from small_dataset import publish, validation_of

from podline.contract.kind import kind_named, kind_of
from podline.documents.intervals import wilson_interval
from podline.documents.ledger_entry import Origin
from podline.documents.manifest import Manifest, Quarantined, SourceFile, dataset_folder, read_manifest
from podline.documents.metric import Metric
from podline.documents.metrics_log import EvaluationLine, EventLine, FindingLine, StepsLine
from podline.documents.model_description import DESCRIPTION
from podline.documents.origins import keep_origin
from podline.kinds.by_example.hooks import Judged
from podline.kinds.classification.document import Evaluation, Figures
from podline.kinds.classification.guesses import Guesses
from podline.ledger.recording import data_of, plain
from podline.recipes.settings import AugmentationSettings, ModelSettings, Recipe
from podline.stages.completed import complete
from podline.stages.specs import (
    EvaluateResult,
    EvaluateSpec,
    ReportSpec,
    TrainSpec,
    ValidateResult,
)
from podline.store import digests
from podline.store.contract import Store
from podline.store.opening import open_store

FINGERPRINT = "0123456789abcdef"
PACKAGES = {"numpy": "2.3.45", "tensorflow": "2.21.0"}
WEIGHTS = "ab" * 32


def finished_run(
    root: Path,
    *,
    class_names: tuple[str, ...] = CIFAR_NAMES,
    records: int = 60,
    accuracy: float = 0.8,
    seed: int = 0,
) -> ReportSpec:
    """Put a data set and a trained, evaluated run into a store; another seed is another run on the same data."""
    random = np.random.default_rng(0)
    store = open_store(root)
    images = random.integers(0, 256, (records, 32, 32, 3), np.uint8)
    labels = np.sort(random.integers(0, len(class_names), len(images)))
    manifest = _data_set(root, class_names, images, labels)
    train = TrainSpec(root=str(root), recipe=_recipe(seed), fingerprint=FINGERPRINT)
    _training(store, train, len(images))
    random = np.random.default_rng(seed)
    guesses = np.where(random.random(len(labels)) < accuracy, labels, random.integers(0, len(class_names), len(labels)))
    spec = EvaluateSpec(
        root=store.uri, run=train.run, dataset="cifar10", fingerprint=FINGERPRINT, weights_sha256=WEIGHTS
    )
    command = "podline run cifar10 --source ../data/cifar10 --root podline-root"
    return publish_evaluation(store, spec, _evaluation(train.run, manifest, labels, guesses, random), command)


def _recipe(seed: int) -> Recipe:
    augmentation = AugmentationSettings(pad=4, flip=True)
    return Recipe(
        name="cifar10", dataset="cifar10", model=ModelSettings(kind="resnet"), augmentation=augmentation, seed=seed
    )


def _data_set(root: Path, names: tuple[str, ...], images: np.ndarray, labels: np.ndarray) -> Manifest:
    store, examples = open_store(root), {"image": images, "label": labels}
    files, left_out = ("batches.meta", "data_batch_1", "test_batch"), ("data_batch_1[0]", "data_batch_1[1]")
    manifest = publish(
        root,
        "cifar10",
        names,
        {"train": examples, "test": examples},
        shard_records=len(images),
        source=tuple(SourceFile(name=name, bytes=1, sha256=digests.of_bytes(name.encode())) for name in files),
        converter={"seed": 0, "shard_bytes": 100_000_000, "min_shards": 10},
        read=2 * len(images) + len(left_out),
        quarantined=tuple(
            Quarantined(split="train", record=name, reason="label 12 vs 10 classes") for name in left_out
        ),
    )
    validate = validation_of(root, "cifar10", FINGERPRINT)
    validated = ValidateResult(seconds=1.08, records=manifest.written, shards=2, duplicates_within=0)
    complete(store, manifest.folder, validate, validated, [])
    return manifest


# Dead for a while, back, and dead again; and one that is there to the end.
FOUND = [
    FindingLine.model_validate(
        {"step": step, "finding": finding, "where": where, "over": over, "figures": {"share": 0.6}, "time": NOON}
        | {"message": f"something is wrong with {where}", "suggestion": "look at it"}
    )
    for step, finding, where, over in (
        (100, "dead_outputs", "stage2_relu", False),
        (200, "waiting_for_input", "input", False),
        (340, "dead_outputs", "stage2_relu", True),
        (1200, "dead_outputs", "stage2_relu", False),
    )
]


def _training(store: Store, spec: TrainSpec, examples: int) -> None:
    random = np.random.default_rng(1 + spec.recipe.seed)
    lines: list[StepsLine | EvaluationLine | FindingLine] = [*FOUND]
    for step in range(20, 1301, 20):
        loss = 0.35 + 1.9 * np.exp(-step / 320) + 0.05 * random.standard_normal()
        now = {"epoch": step / 65, "time": NOON + step * 0.07}
        accuracy = float(np.clip(1 - loss / 2.4 + 0.02 * random.standard_normal(), 0, 1))
        values = {"accuracy": accuracy, "learning_rate": 0.4 * min(step / 260, (1320 - step) / 1060)}
        values |= {"gradient_norm": float(np.hypot(loss, 2 * loss)), "seconds": step * 0.07, "losses": (loss,) * 20}
        values |= {"gradient_norms": {"stem": loss, "classifier": 2 * loss}}
        values |= {"examples_per_second": 1850 + 60 * random.standard_normal()}
        values |= {"waiting": abs(0.02 * random.standard_normal())}
        lines.append(steps_line(step, loss, **values, **now))
        if step % 260 == 0:
            accuracy = float(np.clip(0.97 - loss / 2.6, 0, 1))
            line = evaluation_line(step, loss + 0.1, split="test", examples=examples, accuracy=accuracy, **now)
            lines.append(line)
    events = [
        EventLine(time=NOON, event="started", step=0, message="training from fresh weights"),
        EventLine(time=NOON + 60, event="checkpoint_damaged", step=700, message="checkpoint 700: weights.npz is short"),
        EventLine(time=NOON + 61, event="restored", step=500, message="went on from the checkpoint of step 500"),
        EventLine(time=NOON + 95, event="finished", step=1300, message="all 1,300 steps are done"),
    ]
    speed = {"seconds": 588.4, "examples_per_second": 1851.7, "pflop": 0.515, "waiting_for_input": 0.0123}
    publish_training(
        store, spec, lines, events, steps=1300, epochs=20.0, examples=166_400, loss=0.4123, resumed_from=(500,), **speed
    )
    keep_origin(store, spec.folder, origin_of(store, spec))


def publish_training(store: Store, spec: TrainSpec, lines: list[Any], events: list[EventLine], **figures: Any) -> None:
    """Put what a training leaves into a store: log, events, spec, the model's description, a record with figures."""
    manifest = read_manifest(store, dataset_folder(spec.recipe.dataset, spec.fingerprint))
    shape, classes = manifest.image_shape, len(manifest.class_names)
    description = kind_of(spec.recipe).description(spec.recipe, shape, classes, manifest.facts)
    store.publish_bytes(f"{spec.folder}/{DESCRIPTION}", description.model_dump_json().encode())
    for name, entries in (("metrics.jsonl", lines), ("events.jsonl", events)):
        text = "".join(json.dumps(entry.model_dump(mode="json")) + "\n" for entry in entries)
        store.publish_bytes(f"{spec.folder}/{name}", text.encode())
    store.publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"))
    complete(store, spec.folder, spec, train_result(spec, WEIGHTS, parameters=412_310, **figures), [])


def publish_evaluation(store: Store, spec: EvaluateSpec, document: Any, command: str) -> ReportSpec:
    """Put what an evaluation leaves into a store; return the spec of its report."""
    name = f"{spec.record_folder}/evaluation.json"
    store.publish_json(name, document.model_dump(mode="json"))
    result = EvaluateResult(
        seconds=12.3,
        run=spec.run,
        dataset=spec.dataset,
        examples=document.examples,
        metrics=document.trained.metrics,
        measure=document.measure,
        untrained=document.untrained.metrics[document.measure].value,
        milliseconds=3.14159,
        evaluation_sha256=store.sha256(name),
    )
    complete(store, spec.record_folder, spec, result, [name])
    judged = spec.model_dump(include={"root", "run", "dataset", "fingerprint", "split"})
    return ReportSpec(**judged, evaluation_sha256=result.evaluation_sha256, command=command)


def origin_of(store: Store, spec: TrainSpec) -> Origin:
    return Origin(
        recipe=spec.recipe.name,
        settings={"recipe": plain(spec.recipe), "machine": {"workers": 2}},
        seeds={"recipe": spec.recipe.seed, "data": 0},
        code=night().code,
        data=data_of(read_manifest(store, spec.dataset_folder)),
        environment=night().environment.model_copy(update={"packages": PACKAGES}),
    )


def _evaluation(
    run: str, manifest: Manifest, labels: np.ndarray, predictions: np.ndarray, random: np.random.Generator
) -> Evaluation:
    names, count, wrong = manifest.class_names, len(labels), labels != predictions
    confidences = random.uniform(0.5, 1, count)
    losses = -np.log(np.where(wrong, (1 - confidences) / 2 + 1e-9, confidences))
    guesses = Guesses(labels, predictions, wrong.astype(int), losses, confidences, np.zeros((count, 0), np.float16))
    right, classes = count - int(wrong.sum()), len(names)
    return Evaluation(
        run=run,
        dataset=manifest.dataset,
        fingerprint=manifest.fingerprint,
        weights_sha256=WEIGHTS,
        split="test",
        class_names=names,
        trained=_figures(count, right, min(count, right + 3), 0.5671, 0.0432),
        untrained=_figures(count, count // classes, count // 2, 2.3046, 0.0911),
        seen=_figures(count, count - 1, count, 0.1234, 0.0101),
        guessing=wilson_interval(int(np.bincount(labels).max()), count),
        better_than_guessing=right > 2 * count / classes,
        **kind_named("classification").fields(Judged(names, guesses, guesses, np.empty(0), "train")),
    )


def _figures(count: int, right: int, best_five: int, loss: float, calibration_error: float) -> Figures:
    return Figures(
        examples=count,
        correct=right,
        metrics={
            "loss": Metric(value=loss, low=loss - 0.0512, high=loss + 0.0512),
            "top1": wilson_interval(right, count),
            "top5": wilson_interval(best_five, count),
            "calibration_error": Metric(value=calibration_error, low=calibration_error, high=calibration_error),
        },
    )
