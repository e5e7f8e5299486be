"""Computes a classifier's figures from its logits, to the last bit independent of the division into batches.

Each example is reduced to a few numbers of its own. Sums over examples are computed once, at the end, and exactly
(``math.fsum``). All values are float64 in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from podline.documents.manifest import MANY_CLASSES
from podline.errors import ArtifactError, DivergenceError
from podline.intervals import wilson_interval
from podline.kinds.by_example.measures import figures_of
from podline.kinds.classification.document import ClassFigures, Figures, Guess, Mistake, most_frequent_first
from podline.kinds.classification.guesses import Guesses

MOST_MISTAKES = 25


class ClassificationTally:
    """Collects logits and labels batch by batch, in the order of the split, and computes the figures.

    Attributes:
        classes: number of classes.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._judged: list[Guesses] = []

    def add(self, logits: npt.NDArray[np.float32], labels: npt.NDArray[np.integer]) -> None:
        """Add some examples; padding must have been removed.

        Args:
            logits: float32, shape (n, classes).
            labels: integers from 0 to classes - 1, shape (n,).

        Raises:
            ArtifactError: a label is invalid.
            DivergenceError: logits are not finite, so the weights are not.
        """
        if logits.shape != (len(labels), self.classes):
            raise ValueError(f"logits of shape {logits.shape} vs {len(labels)} labels of {self.classes} classes")
        first = sum(len(batch.labels) for batch in self._judged)
        for place in np.flatnonzero((labels < 0) | (labels >= self.classes)):
            raise ArtifactError(f"record {first + place}: label {labels[place]} vs {self.classes} classes")
        for place in np.flatnonzero(~np.isfinite(logits).all(axis=1)):
            raise DivergenceError(f"record {first + place}: the model's logits are not finite; its training diverged")
        self._judged.append(Guesses.of_logits(logits, labels.astype(np.int64)))

    def guesses(self) -> Guesses:
        """Return the model's answer for every example so far, in the order of the split."""
        if not self._judged:
            raise ValueError("no examples were judged")
        return Guesses.joined(self._judged)

    def figures(self, failed: Callable[[str], object] | None = None) -> Figures:
        """Return the number of correct examples, and every measure; for ``failed`` see :func:`figures_of`."""
        judged = self.guesses()
        return Figures(
            examples=len(judged.labels),
            correct=int(judged.right.sum()),
            metrics=figures_of(judged, "classification", self.classes, failed),
        )

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """Return counts of examples: ``confusion[label][prediction]``; empty above :data:`MANY_CLASSES` classes."""
        if self.classes > MANY_CLASSES:
            return ()
        judged = self.guesses()
        counts = np.bincount(judged.labels * self.classes + judged.predictions, minlength=self.classes**2)
        return tuple(tuple(row) for row in counts.reshape(self.classes, self.classes).tolist())

    def confused(self) -> tuple[tuple[int, int, int], ...]:
        """Return (label, prediction, times) of every mistake above :data:`MANY_CLASSES` classes; empty below."""
        if self.classes <= MANY_CLASSES:
            return ()
        judged = self.guesses()
        wrong = ~judged.right
        pairs = np.stack([judged.labels[wrong], judged.predictions[wrong]])
        found, times = np.unique(pairs, axis=1, return_counts=True)
        return most_frequent_first(zip(*found.tolist(), times.tolist(), strict=True))

    def per_class(self, names: Sequence[str]) -> tuple[ClassFigures, ...]:
        """Return one entry per class, in the order of the labels."""
        judged = self.guesses()
        examples, predicted, correct = (
            np.bincount(labels, minlength=self.classes)
            for labels in (judged.labels, judged.predictions, judged.labels[judged.right])
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

    def mistakes(self, most: int = MOST_MISTAKES) -> tuple[Mistake, ...]:
        """Return the mistakes with the highest confidence, in descending order; ties keep the order of the split."""
        judged = self.guesses()
        wrong = np.flatnonzero(~judged.right)
        worst = wrong[np.argsort(-judged.confidences[wrong], kind="stable")][:most]
        return tuple(Mistake(**_guess(judged, record).model_dump()) for record in worst.tolist())

    def first(self, most: int) -> tuple[Guess, ...]:
        """Return the model's answers for the first examples of the split."""
        judged = self.guesses()
        return tuple(_guess(judged, record) for record in range(min(most, len(judged.labels))))


def _guess(judged: Guesses, record: int) -> Guess:
    return Guess(
        record=record,
        label=int(judged.labels[record]),
        prediction=int(judged.predictions[record]),
        confidence=float(judged.confidences[record]),
        label_probability=float(judged.label_probabilities[record]),
    )
