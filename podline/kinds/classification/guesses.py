"""A classifier's answer to every example of a split: what its measures are computed of, and two models compared by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.documents.manifest import MANY_CLASSES
from podline.evaluation.per_example import PerExample
from podline.kinds.classification.document import CalibrationBin

BINS = 15


@dataclass(frozen=True)
class Guesses(PerExample):
    """One entry an example, in the order of the split, each of shape (n,) but for ``probabilities``.

    Attributes:
        labels: the true classes, int64.
        predictions: the classes with the greatest logit, int64; of equals, the first.
        ranks: how many classes the model preferred to the label, int64; of equal logits, the lower class is preferred.
        losses: cross-entropies in nats, float64.
        confidences: the probabilities that it gave its predictions, float64.
        probabilities: those of all classes, float16 of shape (n, classes); of more than
            :data:`podline.documents.manifest.MANY_CLASSES` none are kept, and the shape is (n, 0).
    """

    file, holds, decides = "guesses.npz", "guesses", "predictions"

    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    losses: npt.NDArray[np.float64]
    confidences: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float16]

    @classmethod
    def of_logits(cls, logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> Guesses:
        """Return what logits of shape (n, classes) say of examples with labels of shape (n,)."""
        rows, classes = np.arange(len(labels)), np.arange(logits.shape[1])
        of_label = logits[rows, labels][:, None]
        preferred = (logits > of_label) | ((logits == of_label) & (classes < labels[:, None]))
        below_best = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        odds = np.exp(below_best)
        # One class after the other: in what order NumPy's own sum takes its terms may depend on the shape of the batch.
        total = odds.cumsum(axis=1)[:, -1]
        kept = len(classes) if len(classes) <= MANY_CLASSES else 0
        return cls(
            labels=labels,
            predictions=logits.argmax(axis=1),
            ranks=preferred.sum(axis=1),
            losses=np.log(total) - below_best[rows, labels],
            confidences=1 / total,
            probabilities=(odds[:, :kept] / total[:, None]).astype(np.float16),
        )

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Return which examples the model got right, (n,)."""
        return self.labels == self.predictions

    @property
    def label_probabilities(self) -> npt.NDArray[np.float64]:
        """The probabilities that the model gave the labels, (n,)."""
        return np.exp(-self.losses)

    def calibration(self) -> tuple[CalibrationBin, ...]:
        """Return confidence and accuracy in bins of equal width: the reliability diagram.

        Guo et al.: "On Calibration of Modern Neural Networks", ICML 2017.
        """
        bins = np.clip(np.ceil(self.confidences * BINS).astype(int) - 1, 0, BINS - 1)
        found = []
        for number in range(BINS):
            inside = bins == number
            count = int(inside.sum())
            found.append(
                CalibrationBin(
                    low=number / BINS,
                    high=(number + 1) / BINS,
                    examples=count,
                    confidence=math.fsum(self.confidences[inside].tolist()) / count if count else 0.0,
                    accuracy=int(self.right[inside].sum()) / count if count else 0.0,
                )
            )
        return tuple(found)

    def calibration_error(self) -> float:
        """Return how far confidence and accuracy lie apart, on average over the examples: the expected error."""
        gaps = [each.examples * abs(each.accuracy - each.confidence) for each in self.calibration()]
        return math.fsum(gaps) / len(self.labels)
