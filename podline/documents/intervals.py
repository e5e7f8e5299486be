"""Computes 95 % intervals of figures, the baseline of guessing, and p-values of several tests."""

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
"""The number of standard deviations that contains a normal variable with a probability of 95 %: 1.96."""


def wilson_interval(successes: int, trials: int) -> Metric:
    """Return a share with Wilson's score interval: all rates that a test at 5 % does not reject.

    Wilson: "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927. In contrast to the normal
    approximation, the interval stays within 0…1 and is never empty.

    Args:
        successes: from 0 to ``trials``.
        trials: number of trials; without any, the share is 0 within 0…1.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes vs {trials} trials")
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
    """Return the accuracy of the best guess that ignores the image, and the range that chance gives it.

    The best guess always names the split's most frequent class. It is right with the probability p = that class's
    share, which is 1 / classes for balanced classes and more otherwise. The class must be chosen on this split: the
    training split's most frequent class may be rare here, and a model with another constant answer would then pass.

    In n examples its accuracy lies within p ± 1.96 · sqrt(p (1 - p) / n) with 95 %. An accuracy lies in this range
    exactly if its Wilson interval contains p, so both can be compared. A model that is not above the range has not
    shown that it uses the images.

    Args:
        class_counts: number of examples of each class in the evaluated split.

    Raises:
        ValueError: there are no examples.
    """
    examples = sum(class_counts)
    if examples == 0:
        raise ValueError("no examples to guess")
    rate = max(class_counts) / examples
    half = Z * math.sqrt(rate * (1 - rate) / examples)
    return Metric(value=rate, low=max(0.0, rate - half), high=min(1.0, rate + half))


def mean_interval(values: Sequence[float]) -> Metric:
    """Return a mean with the normal interval of its standard error; sums are exact in any order.

    Args:
        values: at least one value; a single value has no interval.

    Raises:
        ValueError: there are no values.
    """
    count = len(values)
    if count == 0:
        raise ValueError("no values to average")
    mean = math.fsum(values) / count
    if count == 1:
        return Metric(value=mean, low=mean, high=mean)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = Z * math.sqrt(variance / count)
    return Metric(value=mean, low=mean - half, high=mean + half)


def sampling_variance(metric: Metric) -> float:
    """Return the variance of a figure by its examples, from its interval."""
    return ((metric.high - metric.low) / (2 * Z)) ** 2


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Correct the p-values of several tests, so that each can be compared with the common level.

    Holm: "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979: the
    smallest p-value times their number, the next times one less, and so on, never falling. Without a real difference,
    the probability of any p-value below the level is at most the level, for any dependence between the tests.
    """
    raised, reached = {}, 0.0
    for place, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        reached = max(reached, min(1.0, chances[key] * (len(chances) - place)))
        raised[key] = reached
    return {key: raised[key] for key in chances}
