"""A classifier's figures from its logits, the same to the last bit however the examples were cut into batches.

Each example is reduced to a few numbers of its own; sums over examples are taken once, at the end, and exactly
(``math.fsum``). Everything is float64 and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.documents.evaluation import (
    CalibrationBin,
    ClassFigures,
    Figures,
    Guess,
    Mistake,
    most_frequent_first,
)
from podline.documents.manifest import MANY_CLASSES
from podline.documents.metric import Metric
from podline.errors import ArtifactError, DivergenceError
from podline.evaluation.guesses import Guesses
from podline.evaluation.installed_measures import figures_of
from podline.intervals import mean_interval, wilson_interval

TOP = 5
BINS = 15
MOST_MISTAKES = 25


class ClassificationTally:
    """Takes logits and labels, batch by batch and in the order of the split, and gives the figures.

    Attributes:
        classes: how many there are.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._judged: list[_Examples] = []

    def add(self, logits: npt.NDArray[np.float32], labels: npt.NDArray[np.integer]) -> None:
        """Judge some examples; padding must have been cut off.

        Args:
            logits: float32, shape (n, classes).
            labels: integers from 0 to classes - 1, shape (n,).

        Raises:
            ArtifactError: a label that is no class.
            DivergenceError: logits that are not finite: the weights are not.
        """
        if logits.shape != (len(labels), self.classes):
            raise ValueError(f"logits of shape {logits.shape} vs {len(labels)} labels of {self.classes} classes")
        first = sum(len(batch.labels) for batch in self._judged)
        for place in np.flatnonzero((labels < 0) | (labels >= self.classes)):
            raise ArtifactError(f"record {first + place}: label {labels[place]} vs {self.classes} classes")
        for place in np.flatnonzero(~np.isfinite(logits).all(axis=1)):
            raise DivergenceError(f"record {first + place}: the model's logits are not finite; its training diverged")
        self._judged.append(_judge(logits, labels.astype(np.int64)))

    def _all(self) -> _Examples:
        """All examples so far."""
        if not self._judged:
            raise ValueError("no examples were judged")
        return _Examples(*(np.concatenate(column) for column in zip(*self._judged, strict=True)))

    def figures(self) -> Figures:
        """Loss, shares of right guesses, calibration error, and what installed packages add."""
        judged = self._all()
        count, correct = len(judged.labels), int((judged.ranks == 0).sum())
        metrics = {"loss": mean_interval(judged.losses.tolist()), "top1": wilson_interval(correct, count)}
        correct_top = None
        if self.classes > TOP:
            correct_top = int((judged.ranks < TOP).sum())
            metrics[f"top{TOP}"] = wilson_interval(correct_top, count)
        error = calibration_error(self.calibration())
        metrics["calibration_error"] = Metric(value=error, low=error, high=error)
        metrics |= figures_of(judged.labels, judged.predictions, self.classes)
        return Figures(examples=count, correct=correct, correct_top5=correct_top, metrics=metrics)

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """Counts of examples: ``confusion[label][prediction]``; empty of more than :data:`MANY_CLASSES`."""
        if self.classes > MANY_CLASSES:
            return ()
        judged = self._all()
        counts = np.bincount(judged.labels * self.classes + judged.predictions, minlength=self.classes**2)
        return tuple(tuple(row) for row in counts.reshape(self.classes, self.classes).tolist())

    def confused(self) -> tuple[tuple[int, int, int], ...]:
        """(label, prediction, times) of every mistake, of more than :data:`MANY_CLASSES`; of fewer, none."""
        if self.classes <= MANY_CLASSES:
            return ()
        judged = self._all()
        wrong = judged.ranks > 0
        pairs = np.stack([judged.labels[wrong], judged.predictions[wrong]])
        found, times = np.unique(pairs, axis=1, return_counts=True)
        return most_frequent_first(zip(*found.tolist(), times.tolist(), strict=True))

    def per_class(self, names: Sequence[str]) -> tuple[ClassFigures, ...]:
        """One entry a class, in the order of the labels."""
        judged = self._all()
        examples, predicted, correct = (
            np.bincount(labels, minlength=self.classes)
            for labels in (judged.labels, judged.predictions, judged.labels[judged.ranks == 0])
        )
        return tuple(
            ClassFigures(
                name=name,
                examples=int(examples[label]),
                correct=int(correct[label]),
                predicted=int(predicted[label]),
                accuracy=wilson_interval(int(correct[label]), int(examples[label])),
            )
            for label, name in enumerate(names)
        )

    def calibration(self) -> tuple[CalibrationBin, ...]:
        """What the model's confidence is worth, in bins of equal width.

        Guo et al.: "On Calibration of Modern Neural Networks", ICML 2017: the reliability diagram.
        """
        judged = self._all()
        bins = np.clip(np.ceil(judged.confidences * BINS).astype(int) - 1, 0, BINS - 1)
        found = []
        for number in range(BINS):
            inside = bins == number
            count = int(inside.sum())
            found.append(
                CalibrationBin(
                    low=number / BINS,
                    high=(number + 1) / BINS,
                    examples=count,
                    confidence=math.fsum(judged.confidences[inside].tolist()) / count if count else 0.0,
                    accuracy=int((judged.ranks[inside] == 0).sum()) / count if count else 0.0,
                )
            )
        return tuple(found)

    def mistakes(self, most: int = MOST_MISTAKES) -> tuple[Mistake, ...]:
        """The mistakes that the model was most confident of, the worst first; of equals, the first in the split."""
        judged = self._all()
        wrong = np.flatnonzero(judged.ranks > 0)
        worst = wrong[np.argsort(-judged.confidences[wrong], kind="stable")][:most]
        return tuple(Mistake(**judged.guess(record).model_dump()) for record in worst.tolist())

    def guesses(self) -> Guesses:
        """What the model says of every example, in the order of the split."""
        judged = self._all()
        return Guesses(judged.labels, judged.predictions, judged.confidences, judged.label_probabilities)

    def first(self, most: int) -> tuple[Guess, ...]:
        """What the model says of the first examples of the split."""
        judged = self._all()
        return tuple(judged.guess(record) for record in range(min(most, len(judged.labels))))


def calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """The expected calibration error: how far confidence and accuracy lie apart, on average over the examples."""
    examples = sum(found.examples for found in bins)
    return math.fsum(found.examples * abs(found.accuracy - found.confidence) for found in bins) / examples


class _Examples(NamedTuple):
    """What is kept of each example, float64 or int64, shape (n,).

    Attributes:
        labels: the true classes.
        predictions: the classes with the greatest logit; of equals, the first.
        ranks: how many classes the model preferred to the label; of equal logits, the lower class is preferred.
        losses: cross-entropies in nats.
        confidences: probabilities of the predictions.
        label_probabilities: probabilities of the labels.
    """

    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    losses: npt.NDArray[np.float64]
    confidences: npt.NDArray[np.float64]
    label_probabilities: npt.NDArray[np.float64]

    def guess(self, record: int) -> Guess:
        """What is known of one of them."""
        return Guess(
            record=record,
            label=int(self.labels[record]),
            prediction=int(self.predictions[record]),
            confidence=float(self.confidences[record]),
            label_probability=float(self.label_probabilities[record]),
        )


def _judge(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> _Examples:
    rows, classes = np.arange(len(labels)), np.arange(logits.shape[1])
    of_label = logits[rows, labels][:, None]
    preferred = (logits > of_label) | ((logits == of_label) & (classes < labels[:, None]))
    below_best = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    odds = np.exp(below_best)
    # One class after the other: in what order NumPy's own sum takes its terms may depend on the shape of the batch.
    total = odds.cumsum(axis=1)[:, -1]
    return _Examples(
        labels=labels,
        predictions=logits.argmax(axis=1),
        ranks=preferred.sum(axis=1),
        losses=np.log(total) - below_best[rows, labels],
        confidences=1 / total,
        label_probabilities=odds[rows, labels] / total,
    )
