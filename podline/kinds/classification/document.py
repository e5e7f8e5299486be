"""``evaluation.json`` of a classifier. Needs no TensorFlow.

Report and ledger show its figures. The document's checksum identifies the evaluation: the same weights on the same
records give the same document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from pydantic import Field

from podline.base.frozen import Frozen, omitted
from podline.documents.metric import Metric
from podline.kinds.by_example.document import ImageEvaluation, ImageFigures


class Figures(ImageFigures):
    """A model's figures on some examples.

    Attributes:
        correct: number of examples whose predicted class is correct.
        metrics: ``top1`` and ``top5`` (shares, with Wilson's 95 % interval; ``top5`` for at least six classes),
            ``loss`` (mean cross-entropy in nats, with a normal 95 % interval of the mean), ``calibration_error``
            (expected calibration error, 0…1, without an interval), and the measures of installed packages.
    """

    correct: int = Field(ge=0)


class ClassFigures(Frozen):
    """The figures of a class: ``accuracy`` is the share of its ``examples`` that are ``correct`` (recall).

    ``predicted`` is the number of examples that the model assigned to this class. The interval is Wilson's; a class
    without examples has the accuracy 0 and the interval 0…1.
    """

    name: str
    examples: int
    correct: int
    predicted: int
    accuracy: Metric


class CalibrationBin(Frozen):
    """The examples whose predicted class has a probability in (``low``, ``high``]; an empty bin has means of 0."""

    low: float
    high: float
    examples: int
    confidence: float = Field(description="mean probability of the predicted class")
    accuracy: float = Field(description="share of correct predictions")


class Mistake(Frozen):
    """A wrong answer for one example.

    Attributes:
        record: the example's position in the split, for ``SplitReader.gather``.
        label: index of the true class.
        prediction: index of the predicted class.
        confidence: the predicted probability of ``prediction``.
        label_probability: the predicted probability of ``label``.
    """

    record: int
    label: int
    prediction: int
    confidence: float
    label_probability: float


def most_frequent_first(confusions: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Sort (label, prediction, times) by times, highest first; ties by label and prediction."""
    return tuple(sorted(confusions, key=lambda confusion: (-confusion[2], confusion)))


class Evaluation(ImageEvaluation[Figures]):
    """The evaluation of one model on one split, every example once; see :class:`ImageEvaluation`.

    Attributes:
        guessing: the accuracy of always predicting the split's most frequent class, with its 95 % range; see
            :func:`podline.documents.intervals.guessing_interval`.
        per_class: one entry per class, in the order of the class names.
        confusion: numbers of examples, ``confusion[label][prediction]``; empty above
            :data:`podline.documents.manifest.MANY_CLASSES` classes.
        confused: above ``MANY_CLASSES`` classes, (label, prediction, times) of every pair of confused classes, most
            frequent first; else empty.
        calibration: the reliability diagram, in bins of equal width over 0…1.
        mistakes: at most 25 mistakes, most confident first.
    """

    measure: ClassVar[str] = "top1"

    kind: str = "classification"

    per_class: tuple[ClassFigures, ...]
    confusion: tuple[tuple[int, ...], ...]
    confused: tuple[tuple[int, int, int], ...] = omitted(())
    calibration: tuple[CalibrationBin, ...]
    mistakes: tuple[Mistake, ...]

    def parts(self) -> dict[str, Metric]:
        """Return each class's accuracy by its name, also of classes without examples."""
        return {found.name: found.accuracy for found in self.per_class}

    @property
    def confusions(self) -> Sequence[tuple[int, int, int]]:
        """Return (label, prediction, times) of every pair of confused classes, most frequent first; ties by label."""
        return self.confused or most_frequent_first(
            (label, prediction, times)
            for label, row in enumerate(self.confusion)
            for prediction, times in enumerate(row)
            if times and label != prediction
        )
