"""Computes average precision and F1 of binary predictions, with the influence of every image. Pure functions.

The intervals of :mod:`podline.kinds.by_example.estimate` contain the true AP in 88 to 96 % of simulations, those of the
percentile bootstrap in 79 to 93 %. The simulations have 100 to 5,000 images with 10 to 200 positives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Floats
from podline.kinds.by_example.estimate import Estimate


def average_precision(labels: Array, scores: Array) -> Estimate:
    """Return the average precision, equal to scikit-learn's ``average_precision_score``.

    It is the sum over thresholds of the precision times the rise in recall; equal scores share a threshold.

    Args:
        labels: whether each image has the label, (n,); at least one has it.
        scores: the scores, higher for yes, (n,).
    """
    ranked = _ranked(labels, scores)
    named, right = ranked.named, ranked.right
    gained = np.diff(right, prepend=0.0)
    positives, precision = right[-1], right / named
    value = float((gained * precision).sum() / positives)
    # Cumulative sums from the lowest threshold up to each: a positive adds precision there, any image takes some away.
    adds, takes = (np.cumsum(each[::-1])[::-1] for each in (gained / named, gained * precision / named))
    at = ranked.at
    influence = (labels * (precision[at] + adds[at] - value) - takes[at]) / positives
    return Estimate(value, influence, int(positives))


def f1(labels: Array, named: Array) -> Estimate:
    """Return F1, the harmonic mean of precision and recall, over all answers.

    Args:
        labels: whether each image has the label, (n,), or each label, (n, labels).
        named: whether the model predicts the label, in the shape of ``labels``; if both are all false, F1 is 0.
    """
    right, answered = ((each.reshape(len(labels), -1).sum(axis=1)) for each in (labels & named, labels * 1 + named))
    total = max(1, int(answered.sum()))
    value = 2 * float(right.sum()) / total
    return Estimate(value, (2 * right - value * answered) / total, int(labels.sum()))


def best_threshold(labels: Array, scores: Array) -> float:
    """Return the threshold with the highest F1, midway between two scores or the lowest one; of equals the highest.

    Args:
        labels: whether each image has the label, (n,); at least one has it.
        scores: scores, (n,); the label is predicted at or above the threshold.
    """
    ranked = _ranked(labels, scores)
    best = int(np.argmax(2 * ranked.right / (ranked.right[-1] + ranked.named)))
    below = ranked.scores[min(best + 1, len(ranked.scores) - 1)]
    return float((ranked.scores[best] + below) / 2)


class _Ranked(NamedTuple):
    """The scores of images, highest first, with cumulative counts.

    Attributes:
        scores: the distinct scores, (k,).
        named: number of images with at least this score, (k,).
        right: number of these images that have the label, (k,).
        at: the index in ``scores`` of each image's score, (n,).
    """

    scores: Floats
    named: Floats
    right: Floats
    at: npt.NDArray[np.int64]


def _ranked(labels: Array, scores: Array) -> _Ranked:
    falling, at, counts = np.unique(-scores.astype(np.float64), return_inverse=True, return_counts=True)
    right = np.bincount(at, labels, len(falling))
    return _Ranked(-falling, np.cumsum(counts).astype(float), np.cumsum(right).astype(float), at)
