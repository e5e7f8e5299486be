"""The evaluation stage: a trained model judged on a split, every example once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import ValidationError

from podline import digests
from podline.data.manifest import Manifest, read_manifest
from podline.data.reader import SplitReader
from podline.errors import ArtifactError, SanityError, SettingsError
from podline.evaluation.classification import ClassificationTally
from podline.evaluation.document import EVALUATION, Evaluation
from podline.evaluation.intervals import guessing_interval
from podline.input.pipeline import MASK, EvaluationInput
from podline.progress import Reporter
from podline.stages import EvaluateResult, EvaluateSpec, TrainSpec, complete, manifest_sha256
from podline.storage import Store, open_store
from podline.training.export import load_model
from podline.training.objective import objective_of
from podline.training.plan import TRAINING_SPLIT, plan_training
from podline.training.run import initial_model
from podline.training.train import SPEC

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
    """
    started = time.monotonic()
    store = open_store(spec.root)
    manifest_sha256(store, spec.dataset_folder)
    manifest = read_manifest(store, spec.dataset_folder)
    document = _evaluation(spec, store, manifest, reporter)
    name = f"{spec.folder}/{EVALUATION}"
    path = store.publish_json(name, document.model_dump(mode="json"), replace=True)
    _require_better_than_guessing(document)
    result = EvaluateResult(
        seconds=time.monotonic() - started,
        run=spec.run,
        examples=document.trained.examples,
        metrics=document.trained.metrics,
        untrained_top1=document.untrained.metrics["top1"].value,
        evaluation_sha256=digests.of_file(path),
    )
    complete(store, spec.folder, spec, result, [name])
    return result


def _evaluation(spec: EvaluateSpec, store: Store, manifest: Manifest, reporter: Reporter) -> Evaluation:
    recipe = _training(spec, store).recipe
    folder, batch_size = store.path(spec.dataset_folder), max(_SMALLEST_BATCH, spec.batch_size)
    fields = objective_of(recipe).fields
    judged = EvaluationInput(SplitReader(folder, manifest, spec.split), manifest, fields, batch_size=batch_size)
    seen = EvaluationInput(
        SplitReader(folder, manifest, TRAINING_SPLIT),
        manifest,
        fields,
        batch_size=batch_size,
        ids=plan_training(recipe, manifest).order.ids[: judged.count],
    )
    news = _News(reporter, 2 * judged.count + seen.count)
    # First of all, as in training: it sets the seeds that its weights are drawn from.
    before = logits_of(initial_model(recipe, manifest))
    after = logits_of(load_model(store, spec.folder, spec.weights_sha256))
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
        raise ArtifactError(f"{store.path(name)} is no training spec ({error}); train the run again") from error
    if training.dataset_folder != spec.dataset_folder:
        raise SettingsError(
            f"run {spec.run} was trained on {training.dataset_folder} vs {spec.dataset_folder} to be evaluated on; "
            "give the data set that it was trained on"
        )
    return training


def logits_of(model: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """A model as a function of images: uint8 (n, height, width, channels) in, logits (n, classes) out."""
    return tf.function(lambda images: model(images, training=False), autograph=False)


def tally(
    model: Callable[[tf.Tensor], tf.Tensor], batches: EvaluationInput, classes: int, news: Callable[[int], None]
) -> ClassificationTally:
    """Every example's logits, judged; ``news`` is told how many examples each batch had."""
    judged = ClassificationTally(classes)
    with batches.explained():
        for batch in batches.dataset():
            count = int(np.sum(batch[MASK]))
            judged.add(np.asarray(model(batch["image"]))[:count], batch["label"].numpy()[:count])
            news(count)
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
