"""``evaluation.json`` of a classifier: its figures. Needs no TensorFlow.

The report shows it, the ledger quotes it, and its checksum is the evaluation's identity: the same weights judged on the
same records give the same document.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from pydantic import Field

from podline.documents.metric import Metric
from podline.frozen import Frozen
from podline.kinds.by_example.document import ImageEvaluation, ImageFigures


class Figures(ImageFigures):
    """A model's figures on some examples.

    Attributes:
        correct: how many of them the model's first guess got right.
        metrics: ``top1`` and ``top5`` (shares, with Wilson's 95 % interval; ``top5`` of six classes or more), ``loss``
            (mean cross-entropy in nats, with a normal 95 % interval of the mean), ``calibration_error`` (expected
            calibration error, 0…1, without an interval), and those of installed packages.
    """

    correct: int = Field(ge=0)
    metrics: dict[str, Metric]


class ClassFigures(Frozen):
    """One class: ``accuracy`` is the share of its ``examples`` that were ``correct`` (recall), with Wilson's interval.

    ``predicted`` is how many examples of any class the model took for this one. A class without examples has the
    accuracy 0 within 0…1.
    """

    name: str
    examples: int
    correct: int
    predicted: int
    accuracy: Metric


class CalibrationBin(Frozen):
    """The examples whose first guess had a probability in (``low``, ``high``]; means are 0 where there is none."""

    low: float
    high: float
    examples: int
    confidence: float = Field(description="mean probability of the first guess")
    accuracy: float = Field(description="share of them that were right")


class Guess(Frozen):
    """The model's answer for an example.

    Attributes:
        record: its position in the split, as ``SplitReader.gather`` takes it.
        label: its class.
        prediction: the class that the model gave it.
        confidence: the probability that the model gave its prediction.
        label_probability: the probability that the model gave the label.
    """

    record: int
    label: int
    prediction: int
    confidence: float
    label_probability: float


class Mistake(Guess):
    """An example that the model got wrong."""


def most_frequent_first(confusions: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(label, prediction, times) in the order in which they are shown."""
    return tuple(sorted(confusions, key=lambda confusion: (-confusion[2], confusion)))


class Evaluation(ImageEvaluation[Figures]):
    """One trained model on one split, every example once; see :class:`ImageEvaluation`.

    Attributes:
        guessing: the accuracy of always naming the split's most frequent class, and the range that chance spreads it
            over, see :func:`podline.intervals.guessing_interval`.
        per_class: one entry a class, by label.
        confusion: counts; ``confusion[label][prediction]``; empty of more than
            :data:`podline.documents.manifest.MANY_CLASSES`.
        confused: of this many, in its place: (label, prediction, times) of every mistake, the most frequent first.
        calibration: bins of equal width over 0…1.
        mistakes: the most confident mistakes, the most confident first, at most 25.
        views: how many views of each image ``over_views`` is averaged over; see docs/how-to/train.md.
        over_views: the trained model's figures on the split, averaged so; nothing else in this document is.
    """

    measure: ClassVar[str] = "top1"

    kind: str = "classification"

    per_class: tuple[ClassFigures, ...]
    confusion: tuple[tuple[int, ...], ...]
    confused: tuple[tuple[int, int, int], ...] = Field(default=(), exclude_if=lambda confused: not confused)
    calibration: tuple[CalibrationBin, ...]
    mistakes: tuple[Mistake, ...]
    views: int = Field(default=1, exclude_if=lambda views: views == 1)
    over_views: Figures | None = Field(default=None, exclude_if=lambda figures: figures is None)

    @property
    def confusions(self) -> Sequence[tuple[int, int, int]]:
        """(label, prediction, times) of every mistake, the most frequent first; of equals, the first label."""
        return self.confused or most_frequent_first(
            (label, prediction, times)
            for label, row in enumerate(self.confusion)
            for prediction, times in enumerate(row)
            if times and label != prediction
        )
