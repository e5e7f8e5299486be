"""Computes a classifier's figures by class from its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from podline.documents.intervals import wilson_interval
from podline.documents.manifest import MANY_CLASSES
from podline.kinds.classification.document import ClassFigures, Mistake, most_frequent_first
from podline.kinds.classification.guesses import Guesses

MOST_MISTAKES = 25


def confusion(judged: Guesses, classes: int) -> tuple[tuple[int, ...], ...]:
    """Return the confusion matrix, ``confusion[label][prediction]``; empty above :data:`MANY_CLASSES` classes."""
    if classes > MANY_CLASSES:
        return ()
    counts = np.bincount(judged.labels * classes + judged.predictions, minlength=classes**2)
    return tuple(tuple(row) for row in counts.reshape(classes, classes).tolist())


def confused(judged: Guesses, classes: int) -> tuple[tuple[int, int, int], ...]:
    """Return (label, prediction, times) of every mistake; empty up to :data:`MANY_CLASSES` classes."""
    if classes <= MANY_CLASSES:
        return ()
    pairs = np.stack([judged.labels, judged.predictions])[:, ~judged.right]
    found, times = np.unique(pairs, axis=1, return_counts=True)
    return most_frequent_first(zip(*found.tolist(), times.tolist(), strict=True))


def per_class(judged: Guesses, names: Sequence[str]) -> tuple[ClassFigures, ...]:
    """Return the figures of each class, in the order of the class names."""
    examples, predicted, correct = (
        np.bincount(labels, minlength=len(names)).tolist()
        for labels in (judged.labels, judged.predictions, judged.labels[judged.right])
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


def mistakes(judged: Guesses) -> tuple[Mistake, ...]:
    """Return the mistakes with the highest confidence, highest first."""
    return tuple(
        Mistake(
            record=record,
            label=int(judged.labels[record]),
            prediction=int(judged.predictions[record]),
            confidence=float(judged.confidences[record]),
            label_probability=float(judged.label_probabilities[record]),
        )
        for record in judged.surest_mistakes()[:MOST_MISTAKES].tolist()
    )
