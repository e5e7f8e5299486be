"""A classifier's answers for every example of a split, from which measures and comparisons are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.contract.per_example import PerExample
from podline.documents.intervals import wilson_interval
from podline.documents.manifest import MANY_CLASSES
from podline.kinds.classification.document import CalibrationBin, ClassFigures, Mistake, most_frequent_first

BINS = 15
MOST_MISTAKES = 25


@dataclass(frozen=True)
class Guesses(PerExample):
    """One entry per example, in the order of the split, each of shape (n,) except ``probabilities``.

    Attributes:
        labels: the true classes, int64.
        predictions: the classes with the largest logit, int64; the first class of equal logits.
        ranks: number of classes with a larger logit than the label, int64; of equal logits, the lower class counts as
            larger.
        losses: cross-entropies in nats, float64.
        confidences: the probabilities of the predictions, float64.
        probabilities: probabilities of all classes, float16 of shape (n, classes); of shape (n, 0) above
            :data:`podline.documents.manifest.MANY_CLASSES` classes.
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
        """Compute the entries from logits (n, classes) and labels (n,)."""
        rows, classes = np.arange(len(labels)), np.arange(int(logits.shape[1]))
        of_label = logits[rows, labels][:, None]
        preferred = (logits > of_label) | ((logits == of_label) & (classes < labels[:, None]))
        below_best = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        odds = np.exp(below_best)
        # Adds the classes one by one, since the order of additions in np.sum may depend on the shape of the batch.
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
        """Return which examples the model answered correctly, (n,)."""
        return self.labels == self.predictions

    def surest_mistakes(self) -> npt.NDArray[np.int64]:
        """Return the indices of the mistakes, highest confidence first, (m,); ties keep the order of the split."""
        wrong = np.flatnonzero(~self.right)
        return wrong[np.argsort(-self.confidences[wrong], kind="stable")]

    @property
    def label_probabilities(self) -> npt.NDArray[np.float64]:
        """The probabilities of the labels, (n,)."""
        return np.exp(-self.losses)

    def calibration(self) -> tuple[CalibrationBin, ...]:
        """Return the reliability diagram: mean confidence and accuracy in bins of equal width, 0 in an empty bin.

        Guo et al.: "On Calibration of Modern Neural Networks", ICML 2017.
        """
        bins = np.clip(np.ceil(self.confidences * BINS).astype(int) - 1, 0, BINS - 1)
        found = list[CalibrationBin]()
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
        """Return the expected calibration error: the mean over examples of their bin's |confidence - accuracy|."""
        gaps = [each.examples * abs(each.accuracy - each.confidence) for each in self.calibration()]
        return math.fsum(gaps) / len(self.labels)

    def confusion(self, classes: int) -> tuple[tuple[int, ...], ...]:
        """Return the confusion matrix, ``confusion[label][prediction]``; empty above :data:`MANY_CLASSES` classes."""
        if classes > MANY_CLASSES:
            return ()
        counts = np.bincount(self.labels * classes + self.predictions, minlength=classes**2)
        return tuple(tuple(row) for row in counts.reshape(classes, classes).tolist())

    def confused(self, classes: int) -> tuple[tuple[int, int, int], ...]:
        """Return (label, prediction, times) of confused classes; empty up to :data:`MANY_CLASSES` classes."""
        if classes <= MANY_CLASSES:
            return ()
        pairs = np.stack([self.labels, self.predictions])[:, ~self.right]
        found, times = np.unique(pairs, axis=1, return_counts=True)
        return most_frequent_first(zip(*found.tolist(), times.tolist(), strict=True))

    def per_class(self, names: Sequence[str]) -> tuple[ClassFigures, ...]:
        """Return the figures of each class, in the order of the class names."""
        examples, predicted, correct = (
            np.bincount(labels, minlength=len(names)).tolist()
            for labels in (self.labels, self.predictions, self.labels[self.right])
        )
        return tuple(
            ClassFigures(
                name=name,
                examples=examples[label],
                correct=correct[label],
                predicted=predicted[label],
                accuracy=wilson_interval(correct[label], examples[label]),
            )
            for label, name in enumerate(names)
        )

    def mistakes(self) -> tuple[Mistake, ...]:
        """Return the mistakes with the highest confidence, highest first, at most :data:`MOST_MISTAKES`."""
        return tuple(
            Mistake(
                record=record,
                label=int(self.labels[record]),
                prediction=int(self.predictions[record]),
                confidence=float(self.confidences[record]),
                label_probability=float(self.label_probabilities[record]),
            )
            for record in self.surest_mistakes()[:MOST_MISTAKES].tolist()
        )
