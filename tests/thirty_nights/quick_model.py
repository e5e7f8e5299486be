"""The model's part of a night, played by small stages: weights and an evaluation that the ledger tells of.

What the model gets right follows from the run's name, and from how many images and steps there were to learn from.
"""

from __future__ import annotations

import random
from dataclasses import replace

from small_flow_stages import STEPPING_STAGES, train_in_steps

from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import read_manifest
from podline.intervals import wilson_interval
from podline.inventory.catalogue import training_of
from podline.kinds.classification.document import ClassFigures, Evaluation, Figures
from podline.progress import Reporter
from podline.stages.completed import complete
from podline.stages.specs import WEIGHTS, EvaluateResult, EvaluateSpec, TrainResult, TrainSpec
from podline.store import digests
from podline.store.opening import open_store

_FEW_IMAGES, _MANY_STEPS = 100, 150
_ACCURACY, _POOR, _LONGER = 0.93, 0.55, 0.99


def train(spec: TrainSpec, reporter: Reporter) -> TrainResult:
    """Other data or settings are other weights."""
    store, weights = open_store(spec.root), spec.run.encode()
    store.publish_json(f"{spec.folder}/spec.json", spec.model_dump(mode="json"), replace=True)
    result = train_in_steps(spec, reporter).model_copy(update={"weights_sha256": digests.of_bytes(weights)})
    store.publish_bytes(f"{spec.folder}/{WEIGHTS}", weights, replace=True)
    complete(store, spec.folder, spec, result, [f"{spec.folder}/{WEIGHTS}"])
    return result


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Each test image is right or wrong by chance, which the run's name decides."""
    store = open_store(spec.root)
    training = training_of(store, spec.run)
    manifest = read_manifest(store, training.dataset_folder)
    longer = (training.recipe.duration.steps or 0) >= _MANY_STEPS
    poor = manifest.split("train").records < _FEW_IMAGES
    share = _POOR if poor else _LONGER if longer else _ACCURACY
    count, chance = manifest.split("test").records, random.Random(spec.run)
    right = sum(chance.random() < share for _ in range(count))
    document = _document(spec, manifest.class_names, count, right)
    name = f"{spec.folder}/{EVALUATION}"
    store.publish_json(name, document.model_dump(mode="json"), replace=True)
    result = EvaluateResult(
        run=spec.run,
        dataset=spec.dataset,
        examples=count,
        metrics=document.trained.metrics,
        untrained=0.1,
        evaluation_sha256=store.sha256(name),
    )
    complete(store, spec.folder, spec, result, [name])
    return result


def _document(spec: EvaluateSpec, names: tuple[str, ...], count: int, right: int) -> Evaluation:
    """All that is wrong is of the first class."""
    return Evaluation(
        run=spec.run,
        dataset=spec.dataset,
        fingerprint=spec.fingerprint,
        weights_sha256=spec.weights_sha256,
        split=spec.split,
        class_names=names,
        trained=_figures(count, right),
        untrained=_figures(count, count // len(names)),
        seen=_figures(count, right),
        guessing=wilson_interval(count // len(names), count),
        better_than_guessing=True,
        per_class=(
            ClassFigures(
                name=names[0],
                examples=count,
                correct=right,
                predicted=right,
                accuracy=wilson_interval(right, count),
            ),
        ),
        confusion=((right,),),
        calibration=(),
        mistakes=(),
    )


def _figures(count: int, right: int) -> Figures:
    metrics = {"top1": wilson_interval(right, count)}
    return Figures(examples=count, correct=right, metrics=metrics)


QUICK_STAGES = {
    "train": replace(STEPPING_STAGES["train"], run_at="quick_model:train"),
    "evaluate": replace(STEPPING_STAGES["evaluate"], run_at="quick_model:evaluate"),
    "report": STEPPING_STAGES["report"],
}
