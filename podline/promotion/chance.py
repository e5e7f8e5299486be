"""How likely a model as good as its peers does so badly, by what trainings of one recipe differ among themselves.

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

# What is expected of a variance weighs as much as so many trainings' own.
_EXPECTED_WEIGHT = 4
# … and what is expected without any training, as so many beside those of all parts together.
_ASSUMED_WEIGHT = 10
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
    return student_tail((fmean(peers) - value) / math.sqrt(mixed * (1 + 1 / len(peers))), weight)


def expected_variance(parts: Sequence[Sequence[float]], assumed: Sequence[float]) -> float:
    """The variance between peers that is expected of any part, from all of them, and from what is assumed.

    Args:
        parts: of each class or joint, the figure of each peer.
        assumed: of each of them, the variance that is assumed without knowing any peer.
    """
    own = len(parts) * (len(parts[0]) - 1)
    found, given = fmean(variance(values) for values in parts), fmean(assumed)
    return (_ASSUMED_WEIGHT * given + own * found) / (_ASSUMED_WEIGHT + own)


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
