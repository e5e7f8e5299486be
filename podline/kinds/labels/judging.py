"""Evaluates a model of several labels on a split, every example once."""

from __future__ import annotations

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.reader import SplitReader
from podline.documents.manifest import VALIDATION, Manifest
from podline.errors import ArtifactError
from podline.evaluation.case import Case, Judgement
from podline.evaluation.forward import News
from podline.input.pipeline import EvaluationInput
from podline.kinds.by_example.judging import ask, batches_of, reader_of
from podline.kinds.labels.document import LabelFigures, LabelMistake, LabelsEvaluation, LabelsFigures
from podline.kinds.labels.records import LABELS
from podline.kinds.labels.scores import Scores, Thresholds, probabilities, thresholds_of
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.store.contract import Store
from podline.training.objective import IMAGE
from podline.training.plan import TRAINING_SPLIT, plan_training

FIELDS = (IMAGE, LABELS)
"""The record fields that an evaluation reads."""
MOST_MISTAKES = MOST_PAIRS = 25


def judge(case: Case) -> Judgement:
    """Evaluate a run's model; write its scores for each example beside the document.

    Raises:
        ArtifactError: the data have changed, before or during reading, or no example has a label.
        DivergenceError: the model's logits are not finite.
    """
    spec, manifest, plan = case.spec, case.manifest, plan_training(case.recipe, case.manifest)
    decides = plan.evaluated if plan.evaluated in (TRAINING_SPLIT, VALIDATION) else ""
    readers = {split: reader_of(case, split) for split in (spec.split, TRAINING_SPLIT, decides) if split}
    judged = batches_of(case, readers[spec.split], FIELDS)
    seen = batches_of(case, readers[TRAINING_SPLIT], FIELDS, plan.order.ids[: judged.count])
    held_out = [batches_of(case, readers[decides], FIELDS, plan.held_out)] if decides else []
    asked = [(case.before, judged), *((case.after, batches) for batches in (judged, seen, *held_out))]
    news = News(case.reporter, sum(batches.count for _, batches in asked))
    before, after, *trained_on = [ask(model, case.strategy, batches, LABELS, news.done) for model, batches in asked]
    for reader in readers.values():
        reader.require_unchanged()
    if not after.targets.any():
        raise ArtifactError(f"no {spec.split} example of {manifest.dataset} has a label: there is nothing to evaluate")
    thresholds = Thresholds.chosen(*trained_on[-1])
    untrained, trained, remembered = (
        Scores.of_logits(*each, thresholds.values) for each in (before, after, trained_on[0])
    )
    guessing, figures = trained.guessing(), _figures(trained)
    document = LabelsEvaluation(
        **case.of_run(),
        class_names=manifest.class_names,
        trained=figures,
        untrained=_figures(untrained),
        seen=_figures(remembered),
        guessing=guessing,
        better_than_guessing=figures.metrics["map"].value > guessing.high,
        thresholds_on=VALIDATION if held_out else TRAINING_SPLIT,
        threshold_examples=len(trained_on[-1].targets),
        labels=tuple(_labels(trained, thresholds, manifest.class_names)),
        wrongly_beside=_wrongly_beside(trained),
        mistakes=mistakes_of(trained),
    )
    return Judgement(document, {Scores.file: trained.to_bytes()})


def scores_of(
    model: keras.Model,
    store: Store,
    training: TrainSpec,
    reader: SplitReader,
    manifest: Manifest,
    reporter: Reporter,
    ids: npt.NDArray[np.int64] | None = None,
) -> Scores:
    """Run a model on every example of a split, or on some, and apply its evaluation's thresholds.

    Raises:
        StoreError: the evaluation is missing.
        ArtifactError: the data changed while they were read.
    """
    batches = EvaluationInput(reader, manifest, FIELDS, batch_size=training.recipe.evaluation_batch_size, ids=ids)
    answered = ask(model, tf.distribute.get_strategy(), batches, LABELS, News(reporter, batches.count).done)
    reader.require_unchanged()
    return Scores.of_logits(*answered, thresholds_of(store, training.folder))


def _figures(scores: Scores) -> LabelsFigures:
    return LabelsFigures(examples=len(scores.labels), metrics=scores.metrics())


def _labels(scores: Scores, thresholds: Thresholds, names: tuple[str, ...]) -> list[LabelFigures]:
    precisions = dict(scores.precisions())
    right, positives, named = (
        each.sum(axis=0).tolist() for each in (scores.labels & scores.named, scores.labels, scores.named)
    )
    return [
        LabelFigures(
            name=name,
            positives=positives[label],
            named=named[label],
            right=right[label],
            threshold=float(thresholds.values[label]),
            own_threshold=bool(thresholds.own[label]),
            ap=precisions[label].metric() if label in precisions else None,
            f1=scores.f1(label).metric() if label in precisions else None,
        )
        for label, name in enumerate(names)
    ]


def _wrongly_beside(scores: Scores) -> tuple[tuple[int, int, int], ...]:
    wrong = scores.named & ~scores.labels
    times = (scores.labels.T.astype(np.float32) @ wrong.astype(np.float32)).astype(int)
    order = np.argsort(-times, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, times.shape), strict=True)
    return tuple((int(label), int(other), int(times[label, other])) for label, other in pairs if times[label, other])


def mistakes_of(scores: Scores, most: int = MOST_MISTAKES) -> tuple[LabelMistake, ...]:
    """Return the most confident mistakes, at most one per example, in descending order."""
    return tuple(
        LabelMistake(
            record=record,
            label=label,
            named=bool(scores.named[record, label]),
            probability=float(probabilities(scores.logits[record, label])),
        )
        for record, label in scores.surest_mistakes()[:most].tolist()
    )
