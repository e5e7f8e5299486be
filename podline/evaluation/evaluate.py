"""The evaluation stage: evaluates a trained model on a split, every example once."""

from __future__ import annotations

import contextlib
import time

from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import read_manifest
from podline.errors import SettingsError
from podline.evaluation.case import Case, Judgement
from podline.inventory.catalogue import training_of
from podline.kinds.table import kind_of
from podline.models.of_run import untrained_model
from podline.progress import Reporter
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import EvaluateResult, EvaluateSpec, TrainSpec
from podline.store.contract import Store
from podline.store.folder import temporary_store
from podline.store.opening import open_store
from podline.training import devices
from podline.training.export import load_model
from podline.training.run import prepared


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Evaluate a run's model, and its initial weights, and write ``runs/<run>/evaluation.json``.

    The answers to each example are written beside it. Every figure is the same for any ``batch_size``; the document of
    the run's kind describes them. A model that fails its check gives a result with a ``failure``, so that a report can
    follow.

    Raises:
        StoreError: the data set or the run does not exist.
        SettingsError: the run was trained on another data set.
        ArtifactError: the weights or the data have changed, before or during reading.
        WorkerLostError: some of several processes that evaluate together did not start.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    training = _training(spec, store)
    recipe = training.recipe.changed(task=training.recipe.task.changed(**spec.judging))
    # This comes first, as in training, because it sets the seeds of the initial weights.
    strategy = prepared(recipe, spec.strategy)
    if warning := devices.fallback(spec.strategy):
        reporter.warn(warning)
    devices.warn_of_padding("evaluation_batch_size", spec.batch_size, strategy, reporter)
    agreement = devices.agreement(strategy)
    with strategy.scope():
        before = untrained_model(store, spec.folder, recipe.seed)
        after = load_model(store, spec.folder, spec.weights_sha256)
    case = Case(spec, recipe, before, after, strategy, store, manifest, reporter)
    judgement = kind_of(recipe).judge(case)
    with contextlib.nullcontext(store) if agreement.chief else temporary_store(store, "worker") as mine:
        result = _published(spec, mine, judgement, time.monotonic() - started)
    # All processes wait for the chief.
    agreement.meet()
    if warning := judgement.failure or judgement.warning:
        reporter.warn(warning)
    return result


def _published(spec: EvaluateSpec, store: Store, judgement: Judgement, seconds: float) -> EvaluateResult:
    folder, document = spec.record_folder, judgement.document
    for name, data in judgement.files.items():
        store.publish_bytes(f"{folder}/{name}", data, replace=True)
    name = f"{folder}/{EVALUATION}"
    store.publish_json(name, document.model_dump(mode="json"), replace=True)
    result = EvaluateResult(
        seconds=seconds,
        run=spec.run,
        dataset=spec.dataset,
        examples=document.examples,
        metrics=document.trained.metrics,
        measure=document.measure,
        untrained=document.untrained.metrics[document.measure].value,
        evaluation_sha256=store.sha256(name),
        failure=judgement.failure,
        notes=judgement.notes,
    )
    complete(store, folder, spec, result, [name, *(f"{folder}/{file}" for file in judgement.files)])
    return result


def _training(spec: EvaluateSpec, store: Store) -> TrainSpec:
    """Return the spec of the run's training."""
    training = training_of(store, spec.run)
    if training.dataset_folder != spec.dataset_folder:
        raise SettingsError(
            f"run {spec.run} was trained on {training.dataset_folder} vs {spec.dataset_folder} to be evaluated on; "
            "give the data set that it was trained on"
        )
    return training
