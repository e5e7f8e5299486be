"""The uncertainty of figures: 95 % intervals, and the baseline of guessing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from podline.documents.metric import Metric

Z = NormalDist().inv_cdf(0.975)
"""A normal variable lies within ± this many deviations with a probability of 95 %: 1.96."""


def wilson_interval(successes: int, trials: int) -> Metric:
    """Return a share with Wilson's score interval: all the rates that, tested at 5 %, could have given it.

    Wilson: "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927. Unlike the interval of
    the normal approximation it stays within 0…1 and is never empty.

    Args:
        successes: from 0 to ``trials``.
        trials: how many there were; with none, nothing is known and the share is 0 within 0…1.
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
    """Return the accuracy of the best guess that does not look at the image, and the range that chance spreads it over.

    The best such guess always names the split's most frequent class, and is right with the probability p = that class's
    share, which is 1 / classes where they are balanced and more where they are not: no guess with other probabilities
    does better. The training split's most frequent class may be a rare one here; a model that answers another class for
    every image would then pass.

    In n examples its accuracy lies within p ± 1.96 · sqrt(p (1 - p) / n) with 95 %. An accuracy lies in this range
    exactly if its Wilson interval holds p, so the two can be read side by side. Whoever is not above the range has not
    shown that the images told them anything.

    Args:
        class_counts: examples of each class in the split that is judged.

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
    """Return a mean with the normal interval of its standard error; sums are exact, whatever the order.

    Args:
        values: at least one; of one alone no interval is known.

    Raises:
        ValueError: there are none.
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
