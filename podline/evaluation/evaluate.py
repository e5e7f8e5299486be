"""The evaluation stage: a trained model judged on a split, every example once."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import ValidationError

from podline.data.manifest import Manifest, read_manifest
from podline.data.reader import open_split
from podline.errors import ArtifactError, SanityError, SettingsError
from podline.evaluation.classification import ClassificationTally
from podline.evaluation.document import EVALUATION, Evaluation
from podline.evaluation.intervals import guessing_interval
from podline.input.pipeline import MASK, EvaluationInput
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages import SPEC, EvaluateResult, EvaluateSpec, TrainSpec, complete, manifest_sha256
from podline.storage import Store, open_store
from podline.training import devices
from podline.training.export import load_model
from podline.training.objective import objective_of
from podline.training.plan import TRAINING_SPLIT, plan_training
from podline.training.run import initial_model, prepared

# One example alone goes through a kernel for matrix times vector, which adds up in another order than the one for
# matrices that all larger batches share. In pairs, a logit has the same bits whatever the batch size (seen on CPUs).
_SMALLEST_BATCH = 2
_NEWS_SECONDS = 1.0


def evaluate(spec: EvaluateSpec, reporter: Reporter) -> EvaluateResult:
    """Judges a run's model, and the weights that its training began with, and writes ``runs/<run>/evaluation.json``.

    Every figure is the same for any ``batch_size``; see :class:`podline.evaluation.document.Evaluation` for what there
    is.

    Args:
        spec: the run, the identity of its weights, the split.
        reporter: is told of progress.

    Raises:
        StoreError: there is no such data set or run.
        SettingsError: the run was trained on another data set.
        ArtifactError: the weights or the data are not what they were.
        SanityError: the model cannot be told from guessing; ``evaluation.json`` is written and says so as well.
        WorkerLostError: of several processes that evaluate together not all came.
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    recipe = _training(spec, store).recipe
    # First of all, as in training: it sets the seeds that its weights are drawn from.
    strategy = prepared(recipe, spec.strategy)
    agreement = devices.agreement(strategy)
    document = _evaluation(spec, recipe, strategy, store, manifest, reporter)
    with contextlib.nullcontext(store) if agreement.chief else store.private("worker") as mine:
        result = _published(spec, mine, document, time.monotonic() - started)
    # Nobody is done before the chief is.
    agreement.meet()
    return result


def _published(spec: EvaluateSpec, store: Store, document: Evaluation, seconds: float) -> EvaluateResult:
    name = f"{spec.folder}/{EVALUATION}"
    store.publish_json(name, document.model_dump(mode="json"), replace=True)
    _require_better_than_guessing(document)
    result = EvaluateResult(
        seconds=seconds,
        run=spec.run,
        examples=document.trained.examples,
        metrics=document.trained.metrics,
        untrained_top1=document.untrained.metrics["top1"].value,
        evaluation_sha256=store.sha256(name),
    )
    complete(store, spec.folder, spec, result, [name])
    return result


def _evaluation(
    spec: EvaluateSpec,
    recipe: Recipe,
    strategy: tf.distribute.Strategy,
    store: Store,
    manifest: Manifest,
    reporter: Reporter,
) -> Evaluation:
    before = logits_of(initial_model(recipe, manifest, strategy), strategy)
    with strategy.scope():
        after = logits_of(load_model(store, spec.folder, spec.weights_sha256), strategy)
    batch_size = max(_SMALLEST_BATCH * strategy.num_replicas_in_sync, spec.batch_size)
    fields = objective_of(recipe).fields
    judged = EvaluationInput(
        open_split(store, spec.dataset_folder, manifest, spec.split), manifest, fields, batch_size=batch_size
    )
    seen = EvaluationInput(
        open_split(store, spec.dataset_folder, manifest, TRAINING_SPLIT),
        manifest,
        fields,
        batch_size=batch_size,
        ids=plan_training(recipe, manifest).order.ids[: judged.count],
    )
    news = _News(reporter, 2 * judged.count + seen.count)
    untrained, trained, remembered = (
        tally(model, batches, len(manifest.class_names), news.done)
        for model, batches in ((before, judged), (after, judged), (after, seen))
    )
    figures, guessing = trained.figures(), guessing_interval(manifest.split(spec.split).class_counts)
    return Evaluation(
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

    def answer(part: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        return model(part["image"], training=False), part["label"], part[MASK]

    answers = tf.function(lambda batch: strategy.run(answer, args=(batch,)), autograph=False)

    def over(batches: EvaluationInput) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        parts = strategy.distribute_datasets_from_function(batches.dataset)
        for batch in itertools.islice(parts, batches.batches(strategy.num_replicas_in_sync)):
            logits, labels, mask = (np.asarray(strategy.gather(value, axis=0)) for value in answers(batch))
            count = int(np.sum(mask))
            yield logits[:count], labels[:count]

    return over


def tally(logits: Logits, batches: EvaluationInput, classes: int, news: Callable[[int], None]) -> ClassificationTally:
    """Every example's logits, judged; ``news`` is told how many examples each batch had."""
    judged = ClassificationTally(classes)
    with batches.explained():
        for answers, labels in logits(batches):
            judged.add(answers, labels)
            news(len(labels))
    return judged


class _News:
    """Progress in examples, told once a second at most, and at the end."""

    def __init__(self, reporter: Reporter, total: int) -> None:
        self._reporter, self._total = reporter, total
        self._done, self._told = 0, 0.0

    def done(self, examples: int) -> None:
        """So many more."""
        self._done += examples
        if time.monotonic() - self._told > _NEWS_SECONDS or self._done == self._total:
            self._reporter.progress(self._done, self._total, "examples")
            self._told = time.monotonic()


def _require_better_than_guessing(document: Evaluation) -> None:
    if document.better_than_guessing:
        return
    top1, guessing = document.trained.metrics["top1"], document.guessing
    raise SanityError(
        f"sanity check: {document.run} gets {top1.value:.2%} of {document.trained.examples} {document.split} examples "
        f"right, and guessing gives up to {guessing.high:.2%}: it has learned nothing that can be told from chance; "
        "look at the loss curve, the learning rate and the labels"
    )
