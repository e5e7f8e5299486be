"""``evaluation.json`` of a model with any number of labels per image. Needs no TensorFlow."""

from __future__ import annotations

from typing import ClassVar, Literal

from podline.base.frozen import Frozen
from podline.documents.metric import Metric
from podline.kinds.by_example.document import ImageEvaluation, ImageFigures


class LabelFigures(Frozen):
    """The figures of one label.

    Attributes:
        name: name of the label.
        positives: number of examples with the label.
        named: number of examples for which the model predicts the label.
        right: number of these predictions that are correct.
        threshold: least probability at which the label is predicted.
        own_threshold: whether the threshold was chosen for this label; labels with few examples share one threshold.
        ap: average precision; None without examples.
        f1: F1 at the threshold; None without examples.
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
    """A wrong answer for one label.

    Attributes:
        record: the example's position in the split.
        label: number of the label.
        named: whether the model predicts the label wrongly; False if the model misses the label.
        probability: the predicted probability.
    """

    record: int
    label: int
    named: bool
    probability: float


class LabelsEvaluation(ImageEvaluation[ImageFigures]):
    """The evaluation of one model on one split, every example once; see :class:`ImageEvaluation`.

    Attributes:
        guessing: see :meth:`podline.kinds.labels.scores.Scores.guessing`.
        thresholds_on: the images on which the thresholds were chosen: ``validation`` for a validation split or images
            held out of the training split, ``train`` for images that were trained on if there are no others.
        threshold_examples: number of examples on which the thresholds were chosen.
        labels: one entry per label, in the order of the logits.
        wrongly_beside: (label, other, times): ``times`` examples have ``label`` but not ``other``, and the model
            predicts ``other``; at most 25 pairs, most frequent first.
        mistakes: at most 25 mistakes, at most one per example, most confident first.
    """

    measure: ClassVar[str] = "map"

    kind: str = "labels"

    thresholds_on: Literal["validation", "train"]
    threshold_examples: int
    labels: tuple[LabelFigures, ...]
    wrongly_beside: tuple[tuple[int, int, int], ...]
    mistakes: tuple[LabelMistake, ...]

    def parts(self) -> dict[str, Metric]:
        """Return the average precision of each judged label."""
        return {found.name: found.ap for found in self.labels if found.ap}

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The names of the labels without examples in the split, which mAP leaves out."""
        return tuple(found.name for found in self.labels if found.ap is None)
