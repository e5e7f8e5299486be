"""``evaluation.json`` of a model that names any number of labels. Needs no TensorFlow."""

from __future__ import annotations

from typing import ClassVar, Literal

from podline.documents.metric import Metric
from podline.frozen import Frozen
from podline.kinds.by_example.document import ImageEvaluation, ImageFigures


class LabelsFigures(ImageFigures):
    """A model's figures on some examples.

    Attributes:
        metrics: ``map`` (mean of the labels' average precision), ``f1_micro`` and ``f1_macro`` (at the thresholds),
            ``exact`` (share of examples whose labels are all named and no other) and ``loss`` (mean over the examples
            of the labels' cross-entropies, added up, in nats), each with its 95 % interval.
    """

    metrics: dict[str, Metric]


class LabelFigures(Frozen):
    """One label.

    Attributes:
        name: its name.
        positives: examples that have it.
        named: examples that the model says have it.
        right: examples of both.
        threshold: the probability from which on it is named.
        own_threshold: whether the threshold was chosen for it alone; one with few examples takes that of all.
        ap: average precision; None of a label that no example has.
        f1: at the threshold; None likewise.
    """

    name: str
    positives: int
    named: int
    right: int
    threshold: float
    own_threshold: bool
    ap: Metric | None
    f1: Metric | None


class LabelMistake(Frozen):
    """An answer that is wrong.

    Attributes:
        record: the example's position in the split.
        label: which label.
        named: whether the model names it; else it misses it.
        probability: what the model gives it.
    """

    record: int
    label: int
    named: bool
    probability: float


class LabelsEvaluation(ImageEvaluation[LabelsFigures]):
    """One trained model on one split, every example once; see :class:`ImageEvaluation`.

    Attributes:
        guessing: see :meth:`podline.kinds.labels.scores.Scores.guessing`.
        thresholds_on: what the thresholds were chosen on: ``validation``, images held out of the training split, or
            ``train``, images trained on, where none were held out. Never the split that is judged.
        threshold_examples: how many these are.
        labels: one entry a label, in the order of the logits.
        wrongly_beside: (label, other, times): examples with a label for which the model names another that they lack,
            the most frequent first, at most 25.
        mistakes: the most confident ones, at most one an example, the most confident first, at most 25.
    """

    measure: ClassVar[str] = "map"

    kind: str = "labels"

    thresholds_on: Literal["validation", "train"]
    threshold_examples: int
    labels: tuple[LabelFigures, ...]
    wrongly_beside: tuple[tuple[int, int, int], ...]
    mistakes: tuple[LabelMistake, ...]

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The labels that no example has; they are no part of mAP."""
        return tuple(found.name for found in self.labels if found.ap is None)
