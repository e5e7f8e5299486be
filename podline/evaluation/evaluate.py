"""The evaluation stage: a trained model judged on a split, every example once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import ValidationError

from podline.data.reader import SplitReader, open_split
from podline.documents.evaluation import EVALUATION, Evaluation
from podline.documents.manifest import Manifest, read_manifest
from podline.documents.metric import Metric
from podline.documents.pose_evaluation import PoseEvaluation
from podline.errors import ArtifactError, SanityError, SettingsError
from podline.evaluation.classification import ClassificationTally
from podline.evaluation.forward import News, answers_of
from podline.evaluation.guesses import GUESSES
from podline.evaluation.poses import judge_poses, pose_answers, settings_of
from podline.input.pipeline import EvaluationInput
from podline.intervals import guessing_interval
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.completed import complete, manifest_sha256
from podline.stages.specs import SPEC, EvaluateResult, EvaluateSpec, TrainSpec
from podline.store.contract import Store
from podline.store.folder import temporary_store
from podline.store.opening import open_store
from podline.training import devices
from podline.training.export import load_model
from podline.training.objectives import objective_of
from podline.training.plan import TRAINING_SPLIT, plan_training
from podline.training.run import initial_model, prepared

# One example alone goes through a kernel for matrix times vector, which adds up in another order than the one for
# matrices that all larger batches share. In pairs, a logit has the same bits whatever the batch size (seen on CPUs).
_SMALLEST_BATCH = 2


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Judges a run's model, and the weights that its training began with, and writes ``runs/<run>/evaluation.json``.

    Beside it lies what is said of each example: ``guesses.npz``, or the people found, as COCO results. Every figure is
    the same for any ``batch_size``; see :class:`podline.documents.evaluation.Evaluation` and
    :class:`podline.documents.pose_evaluation.PoseEvaluation` for what there is. A pose network that cannot be told from
    guessing is warned of, in the document as well: few images are soon too few to find anybody in others.

    Args:
        spec: the run, the identity of its weights, the split.
        reporter: is told of progress.

    Raises:
        StoreError: there is no such data set or run.
        SettingsError: the run was trained on another data set.
        ArtifactError: the weights or the data are not what they were, or the data were changed while they were read.
        SanityError: a classifier cannot be told from guessing; ``evaluation.json`` is written and says so as well.
        WorkerLostError: of several processes that evaluate together not all came.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder, spec.manifest_digest)
    recipe = _training(spec, store).recipe
    # First of all, as in training: it sets the seeds that its weights are drawn from.
    strategy = prepared(recipe, spec.strategy)
    if warning := devices.fallback(spec.strategy):
        reporter.warn(warning)
    agreement = devices.agreement(strategy)
    before = initial_model(recipe, manifest, strategy)
    with strategy.scope():
        after = load_model(store, spec.folder, spec.weights_sha256)
    case = _Case(spec, recipe, before, after, strategy, store, manifest, reporter)
    judgement = _judged_poses(case) if recipe.pose else _judged_classes(case)
    with contextlib.nullcontext(store) if agreement.chief else temporary_store(store, "worker") as mine:
        result = _published(spec, mine, judgement, time.monotonic() - started)
    # Nobody is done before the chief is.
    agreement.meet()
    if judgement.warning:
        reporter.warn(judgement.warning)
    return result


class _Case(NamedTuple):
    """What is judged: a run's model before training and after it, on a data set."""

    spec: EvaluateSpec
    recipe: Recipe
    before: Any
    after: Any
    strategy: tf.distribute.Strategy
    store: Store
    manifest: Manifest
    reporter: Reporter


class _Judgement(NamedTuple):
    """What an evaluation leaves.

    Attributes:
        document: all figures; ``evaluation.json``.
        files: what else is written beside it, by name.
        measure: the metric that counts.
        examples: how many were judged.
        metrics: of the trained model.
        untrained: the metric that counts of the untrained one.
        warning: what a person should look at; empty if all is well.
    """

    document: Evaluation | PoseEvaluation
    files: dict[str, bytes]
    measure: Literal["top1", "ap"]
    examples: int
    metrics: dict[str, Metric]
    untrained: float
    warning: str = ""


def _published(spec: EvaluateSpec, store: Store, judgement: _Judgement, seconds: float) -> EvaluateResult:
    folder = spec.verdict_folder
    for name, data in judgement.files.items():
        store.publish_bytes(f"{folder}/{name}", data, replace=True)
    name = f"{folder}/{EVALUATION}"
    store.publish_json(name, judgement.document.model_dump(mode="json"), replace=True)
    if isinstance(judgement.document, Evaluation):
        _require_better_than_guessing(judgement.document)
    result = EvaluateResult(
        seconds=seconds,
        run=spec.run,
        examples=judgement.examples,
        metrics=judgement.metrics,
        measure=judgement.measure,
        untrained=judgement.untrained,
        evaluation_sha256=store.sha256(name),
    )
    complete(store, folder, spec, result, [name, *(f"{folder}/{file}" for file in judgement.files)])
    return result


def _judged_poses(case: _Case) -> _Judgement:
    recipe = case.recipe
    before, after = (pose_answers(model, case.strategy, settings_of(recipe)) for model in (case.before, case.after))
    found = judge_poses(case.spec, recipe, (before, after), case.store, case.manifest, case.reporter)
    document = found.document
    return _Judgement(
        document=document,
        files=found.files(),
        measure="ap",
        examples=document.trained.images,
        metrics=document.trained.metrics,
        untrained=document.untrained.metrics["ap"].value,
        warning="" if document.better_than_guessing else document.verdict(),
    )


def _judged_classes(case: _Case) -> _Judgement:
    spec, manifest = case.spec, case.manifest
    before, after = (logits_of(model, case.strategy) for model in (case.before, case.after))
    readers = {split: _reader(case, split) for split in (spec.split, TRAINING_SPLIT)}
    judged = _batches(case, readers[spec.split])
    seen = _batches(case, readers[TRAINING_SPLIT], plan_training(case.recipe, manifest).order.ids[: judged.count])
    news = News(case.reporter, 2 * judged.count + seen.count)
    untrained, trained, remembered = (
        tally(model, batches, len(manifest.class_names), news.done)
        for model, batches in ((before, judged), (after, judged), (after, seen))
    )
    for reader in readers.values():
        reader.require_unchanged()
    figures, guessing = trained.figures(), guessing_interval(manifest.split(spec.split).class_counts)
    document = Evaluation(
        run=spec.run,
        dataset=spec.dataset,
        fingerprint=spec.fingerprint,
        weights_sha256=spec.weights_sha256,
        split=spec.split,
        class_names=manifest.class_names,
        trained=figures,
        untrained=untrained.figures(),
        seen=remembered.figures(),
        guessing=guessing,
        better_than_guessing=figures.metrics["top1"].value > guessing.high,
        per_class=trained.per_class(manifest.class_names),
        confusion=trained.confusion(),
        calibration=trained.calibration(),
        mistakes=trained.mistakes(),
    )
    return _Judgement(
        document=document,
        files={GUESSES: trained.guesses().to_bytes()},
        measure="top1",
        examples=figures.examples,
        metrics=figures.metrics,
        untrained=document.untrained.metrics["top1"].value,
    )


def _reader(case: _Case, split: str) -> SplitReader:
    return open_split(case.store, case.spec.dataset_folder, case.manifest, split, case.reporter)


def _batches(case: _Case, reader: SplitReader, ids: npt.NDArray[np.int64] | None = None) -> EvaluationInput:
    return EvaluationInput(
        reader,
        case.manifest,
        objective_of(case.recipe).fields,
        batch_size=max(_SMALLEST_BATCH * case.strategy.num_replicas_in_sync, case.spec.batch_size),
        ids=ids,
    )


def _training(spec: EvaluateSpec, store: Store) -> TrainSpec:
    """What the run was trained with."""
    name = f"{spec.folder}/{SPEC}"
    try:
        training = TrainSpec.model_validate(store.read_json(name))
    except ValidationError as error:
        raise ArtifactError(f"{store.where(name)} is no training spec ({error}); train the run again") from error
    if training.dataset_folder != spec.dataset_folder:
        raise SettingsError(
            f"run {spec.run} was trained on {training.dataset_folder} vs {spec.dataset_folder} to be evaluated on; "
            "give the data set that it was trained on"
        )
    return training


Logits = Callable[[EvaluationInput], Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]]


def logits_of(model: Any, strategy: tf.distribute.Strategy) -> Logits:
    """A model as a function of an input: for each batch the logits, (n, classes), and labels, (n,), of its examples.

    Args:
        model: takes uint8 images (n, height, width, channels).
        strategy: what it was built under; each replica answers its part of a batch.
    """
    answers = answers_of(model, strategy)
    return lambda batches: ((logits, fields["label"]) for logits, fields in answers(batches))


def tally(logits: Logits, batches: EvaluationInput, classes: int, news: Callable[[int], None]) -> ClassificationTally:
    """Every example's logits, judged; ``news`` is told how many examples each batch had."""
    judged = ClassificationTally(classes)
    with batches.explained():
        for answers, labels in logits(batches):
            judged.add(answers, labels)
            news(len(labels))
    return judged


def _require_better_than_guessing(document: Evaluation) -> None:
    if document.better_than_guessing:
        return
    top1, guessing = document.trained.metrics["top1"], document.guessing
    raise SanityError(
        f"sanity check: {document.run} gets {top1.value:.2%} of {document.trained.examples} {document.split} examples "
        f"right, and guessing gives up to {guessing.high:.2%}: it has learned nothing that can be told from chance; "
        "look at the loss curve, the learning rate and the labels"
    )
