"""Statistics: 95 % intervals of metrics, the accuracy of guessing, and Holm's correction of p-values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TypeVar

from podline.documents.metric import Metric

Key = TypeVar("Key")
TAIL = 0.025
"""The share of values beyond either end of a 95 % interval."""
ENDS = TAIL, 1 - TAIL
"""The quantiles at both ends of a 95 % interval."""
RESAMPLES = 1_000
"""Number of samples of a bootstrap."""
Z = NormalDist().inv_cdf(1 - TAIL)
"""1.96: a normal variable is within ± 1.96 standard deviations of its mean with a probability of 95 %."""


def wilson_interval(successes: int, trials: int) -> Metric:
    """Return the share successes / trials with Wilson's score interval: all rates that a test at 5 % does not reject.

    Wilson: "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927. In contrast to the normal
    approximation, the interval stays within 0…1 and is never empty.

    Args:
        successes: from 0 to ``trials``.
        trials: number of trials; for 0 trials, the share is 0 and the interval is 0…1.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"got {successes} successes, expected 0 to {trials}, the number of trials")
    if trials == 0:
        return Metric(value=0.0, low=0.0, high=1.0)
    share, spread = successes / trials, Z**2 / trials
    centre = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return Metric(
        value=share,
        low=max(0.0, centre - half) if successes else 0.0,
        high=min(1.0, centre + half) if successes < trials else 1.0,
    )


def guessing_interval(class_counts: Sequence[int]) -> Metric:
    """Return the accuracy of the best guess that ignores the image, with its 95 % range.

    The best guess always answers the most frequent class of the split. Its accuracy p is the share of this class: 1 /
    classes for balanced classes, and more otherwise. The class must be the most frequent one of this split. The most
    frequent class of the training split may be rare here, and another constant answer would then be better.

    In n examples, the accuracy of guessing lies within p ± 1.96 · sqrt(p (1 - p) / n) with 95 %. A model's accuracy
    lies in this range exactly if its Wilson interval contains p. A model that is not above the range has not shown
    that it uses the images.

    Args:
        class_counts: number of examples of each class in the evaluated split.

    Raises:
        ValueError: there are no examples.
    """
    examples = sum(class_counts)
    if examples == 0:
        raise ValueError("got class counts whose sum is 0, expected at least one example")
    rate = max(class_counts) / examples
    half = Z * math.sqrt(rate * (1 - rate) / examples)
    return Metric(value=rate, low=max(0.0, rate - half), high=min(1.0, rate + half))


def mean_interval(values: Sequence[float]) -> Metric:
    """Return the mean of values with its normal 95 % interval, from the standard error; the order does not matter.

    Args:
        values: at least one value; for a single value, the interval has the width 0.

    Raises:
        ValueError: there are no values.
    """
    count = len(values)
    if count == 0:
        raise ValueError("got no values, expected at least one to average")
    mean = math.fsum(values) / count
    if count == 1:
        return Metric(value=mean, low=mean, high=mean)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = Z * math.sqrt(variance / count)
    return Metric(value=mean, low=mean - half, high=mean + half)


def sampling_variance(metric: Metric) -> float:
    """Return the variance of a metric due to the choice of the test examples, computed from its 95 % interval."""
    return ((metric.high - metric.low) / (2 * Z)) ** 2


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Correct the p-values of n tests for multiple testing; return the corrected p-values.

    Holm: "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979. Multiply
    the smallest p-value by n, the next by n - 1, and so on; then take running maxima. If no test has a real
    difference, any corrected p-value is below a level with at most this level's probability, for dependent tests too.
    """
    corrected, largest = {}, 0.0
    for rank, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        largest = max(largest, min(1.0, chances[key] * (len(chances) - rank)))
        corrected[key] = largest
    return {key: corrected[key] for key in chances}
