"""The kind of task that predicts any number of labels per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from podline.base.arrays import Array, Floats
from podline.base.errors import ArtifactError
from podline.contract.rules import Rule
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.intervals import mean_interval
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.kinds.by_example.document import ImageFigures
from podline.kinds.by_example.hooks import Judged, shares_of
from podline.kinds.by_example.kind import ExampleKind
from podline.kinds.by_example.rules import guards, main
from podline.kinds.labels import rules, sections
from podline.kinds.labels.document import LabelFigures, LabelMistake, LabelsEvaluation
from podline.kinds.labels.records import LABELS
from podline.kinds.labels.scores import Scores, enough, probabilities
from podline.kinds.labels.settings import LabelsSettings
from podline.recipes.settings import Recipe
from podline.report.sections import Section, sections_in
from podline.stages.tools import PicturePrediction

if TYPE_CHECKING:
    from podline.contract.objective import Objective

_MOST_MISTAKES = _MOST_PAIRS = 25


class LabelsKind(ExampleKind[Scores]):
    """Any number of labels per image."""

    target = LABELS
    read_by = Scores
    tells = "labels"
    about = "over the labels of the {split} split of {dataset}"
    guess = "Guessing (the same scores, assigned to the images at random) gives"

    def objective(self, recipe: Recipe, manifest: Manifest) -> Objective:
        """Build the objective of a recipe for several labels."""
        from podline.kinds.labels.objective import LabelsObjective

        return LabelsObjective(LabelsSettings.of(recipe).label_smoothing, recipe.loss)

    def answered(self, outputs: Array, targets: Array, recipe: Recipe) -> Scores:
        """Return the scores of logits (n, labels), with the threshold 0.5 until thresholds are chosen."""
        return Scores.of_logits(outputs, targets, np.full(targets.shape[1:], 0.5))

    def guessing(self, trained: Scores) -> Metric:
        """Return the mAP of the trained model's scores when they are assigned to the images at random.

        Raises:
            ArtifactError: no example has a label.
        """
        if not trained.labels.any():
            raise ArtifactError("no judged example has a label: there is nothing to evaluate; give a split with labels")
        return trained.guessing()

    def words(self, answers: Scores, manifest: Manifest) -> list[str]:
        """Return each example's predicted labels as text, separated by commas; ``none`` without labels."""
        return self.truths(answers.named, manifest)

    def prediction(
        self, picture: PicturePrediction, output: Array, recipe: Recipe, manifest: Manifest, thresholds: Floats
    ) -> PicturePrediction:
        """Return each label whose probability reaches its threshold, most probable first."""
        shares = probabilities(output)
        named = [label for label in np.argsort(-shares, kind="stable").tolist() if shares[label] >= thresholds[label]]
        return picture.changed(classes=shares_of(manifest.class_names, shares, named))

    def figures(self, answers: Scores, classes: int, failed: Callable[[str], object] | None = None) -> ImageFigures:
        """Return every measure, and the loss: cross-entropy in nats, summed over labels, averaged over examples."""
        found = super().figures(answers, classes, failed)
        return found.changed(metrics={**found.metrics, "loss": mean_interval(answers.losses.tolist())})

    def fields(self, judged: Judged[Scores]) -> Mapping[str, object]:
        """Return the fields of :class:`LabelsEvaluation` about thresholds, labels and mistakes."""
        return {
            "thresholds_on": judged.chosen_on,
            "threshold_examples": len(judged.held_out.labels),
            "labels": tuple(_labels(judged)),
            "wrongly_beside": _wrongly_beside(judged.trained),
            "mistakes": tuple(_mistakes(judged.trained)),
        }

    def thresholds_in(self, evaluation: AnyEvaluation) -> Floats:
        """Return the thresholds of an evaluation, (labels,)."""
        return np.array([label.threshold for label in LabelsEvaluation.of(evaluation).labels])

    def lost_order(self, before: Scores, after: Scores) -> Floats:
        """Return the loss before minus the loss after, (n,): the example whose loss rose most comes first."""
        return before.losses - after.losses

    def sections(self) -> Iterable[Section]:
        """Return the sections of a report on several labels."""
        return sections_in(sections)

    def rules(self) -> Sequence[Rule]:
        """Return the rules for several labels."""
        return (main, rules.labels, guards)


def _labels(judged: Judged[Scores]) -> Iterator[LabelFigures]:
    scores, names = judged.trained, judged.class_names
    precisions, own = dict(scores.precisions()), enough(judged.held_out.labels)
    right, positives, named = (
        each.sum(axis=0).tolist() for each in (scores.labels & scores.named, scores.labels, scores.named)
    )
    for label, name in enumerate(names):
        yield LabelFigures(
            name=name,
            positives=positives[label],
            named=named[label],
            right=right[label],
            threshold=float(judged.thresholds[label]),
            own_threshold=bool(own[label]),
            ap=precisions[label].metric() if label in precisions else None,
            f1=scores.f1(label).metric() if label in precisions else None,
        )


def _wrongly_beside(scores: Scores) -> tuple[tuple[int, int, int], ...]:
    wrong = scores.named & ~scores.labels
    times = (scores.labels.T.astype(np.float32) @ wrong.astype(np.float32)).astype(int)
    order = np.argsort(-times, axis=None, kind="stable")[:_MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, times.shape), strict=True)
    return tuple((int(label), int(other), int(times[label, other])) for label, other in pairs if times[label, other])


def _mistakes(scores: Scores) -> Iterator[LabelMistake]:
    """Yield the most confident mistakes, at most one per example, in descending order."""
    for record, label in scores.surest_wrong_labels()[:_MOST_MISTAKES].tolist():
        yield LabelMistake(
            record=record,
            label=label,
            named=bool(scores.named[record, label]),
            probability=float(probabilities(scores.logits[record, label])),
        )
