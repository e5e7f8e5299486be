"""The chance that a model as good as its peers does this badly, from the spread between trainings.

Shares are compared as angles, ``asin(sqrt(r))``, which spread about equally wherever they lie, while shares near 0 and
1 do not (Anscombe: "The transformation of Poisson, binomial and negative-binomial data", Biometrika 1948). There are
few trainings to learn a spread from, and many classes: each class's variance is mixed with what is expected of it, and
the t-test knows how much that is worth (Smyth: "Linear Models and Empirical Bayes Methods for Assessing Differential
Expression in Microarray Experiments", 2004).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from podline.evaluation.paired import Changed

# What is expected of a variance weighs as much as so many trainings' own.
_EXPECTED_WEIGHT = 4
# However many trainings are known: their shares have longer tails than a normal variable.
_MOST_FREEDOM = 8
# Parts that move each by itself move the whole by the root of their number less; they do not quite do that.
_NOT_QUITE_APART = 1.5
# From fewer parts than this nothing is learned about the others.
_FEWEST_PARTS = 4
GUESSED_FREEDOM = 4
"""Degrees of freedom of what a seed does, where its size is guessed from how the parts of two models differ."""
_STEPS, _TINY = 300, 1e-300


class Share(NamedTuple):
    """A share of right answers among so many examples."""

    value: float
    examples: int

    @property
    def angle(self) -> float:
        """``asin(sqrt(r))``, with Anscombe's correction for few examples."""
        return math.asin(math.sqrt((self.value * self.examples + 3 / 8) / (self.examples + 3 / 4)))


def spread_of(spread: float, share: float) -> float:
    """A spread that is given for a share of one half, at another share: the same in angles."""
    return 2 * spread * math.sqrt(max(0.0, share * (1 - share)))


def chance_by_peers(peers: Sequence[float], value: float, expected: float) -> float:
    """How likely a value so low, or lower, is for one more of the peers: a moderated t-test.

    Args:
        peers: the figure of each, at least two.
        value: of the one that is judged.
        expected: the variance that is expected between peers.
    """
    own = len(peers) - 1
    weight = _EXPECTED_WEIGHT + own
    mixed = (_EXPECTED_WEIGHT * expected + own * variance(peers)) / weight
    if mixed == 0:
        return 0.0 if value < fmean(peers) else 1.0
    freedom = min(weight, _MOST_FREEDOM)
    return student_tail((fmean(peers) - value) / math.sqrt(mixed * (1 + 1 / len(peers))), freedom)


class Movement(NamedTuple):
    """What became of a class or a joint from one model to the other.

    Attributes:
        counts: its examples.
        share: of right answers, about which the two lie.
    """

    counts: Changed
    share: float

    @property
    def angle(self) -> float:
        """By how much it fell, as an angle."""
        return self.counts.drop / self._slope

    @property
    def luck(self) -> float:
        """The variance of that which the examples alone explain."""
        return (self.counts.lost + self.counts.gained) / (self.counts.examples * self._slope) ** 2

    @property
    def _slope(self) -> float:
        """By how much a share changes with its angle."""
        edge = 0.5 / self.counts.examples
        share = min(max(self.share, edge), 1 - edge)
        return 2 * math.sqrt(share * (1 - share))


def shown_spread(parts: Sequence[Movement]) -> float:
    """What a seed does to a part, by how differently the parts of two models moved, beyond what examples explain.

    A movement that all of them share is no part of it. It is an estimate: 0 if there are too few parts.
    """
    if len(parts) < _FEWEST_PARTS:
        return 0.0
    beyond = variance(part.angle for part in parts) - fmean(part.luck for part in parts)
    # Two models moved, and each did half of it.
    return math.sqrt(max(0.0, beyond) / 2)


def spread_of_all(spread: float, part_spread: float, parts: int) -> float:
    """The spread of the figure over all parts: what moves it by itself, and what the parts do to it."""
    return math.hypot(spread, part_spread * math.sqrt(_NOT_QUITE_APART / parts) if parts else 0.0)


def normal_tail(deviations: float) -> float:
    """How likely a normal variable lies so many deviations above its mean, or further."""
    return NormalDist().cdf(-deviations)


def student_tail(t: float, freedom: float) -> float:
    """How likely Student's variable with so many degrees of freedom is ``t`` or more."""
    tail = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function: Abramowitz and Stegun 26.5.8, by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, upper, lower = 1.0, 1.0, 0.0
    for step in range(_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        lower = 1 / ((1 + term * lower) or _TINY)
        upper = (1 + term / upper) or _TINY
        fraction *= upper * lower
        if step and abs(upper * lower - 1) < 1e-14:
            break
    return front * (fraction - 1)
