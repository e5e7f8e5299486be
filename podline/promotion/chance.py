"""The chance that a model as good as its peers does this badly, from the spread between trainings.

Shares are compared as angles, ``asin(sqrt(r))``, which spread about equally wherever they lie, while shares near 0 and
1 do not (Anscombe: "The transformation of Poisson, binomial and negative-binomial data", Biometrika 1948). There are
few trainings to learn a spread from, and many classes: each class's variance is mixed with what is expected of it, and
the t-test knows how much that is worth (Smyth: "Linear Models and Empirical Bayes Methods for Assessing Differential
Expression in Microarray Experiments", 2004).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.evaluation.paired import Changed

Floats = npt.NDArray[np.float64]

# What is expected of a variance weighs as much as so many trainings' own.
_EXPECTED_WEIGHT = 4
# A variance is never taken for less than this part of what is expected: few examples are often all right by luck.
_LEAST = 0.7
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
        return float(angle_of(self.value, self.examples))


def angle_of(share: npt.ArrayLike, examples: int) -> Floats:
    """Shares of right answers among so many examples, as angles."""
    return np.arcsin(np.sqrt((np.asarray(share) * examples + 3 / 8) / (examples + 3 / 4)))


def half_an_example(share: npt.ArrayLike, examples: int) -> Floats:
    """By how much the angles of shares would be less with half an example less."""
    return angle_of(share, examples) - angle_of(np.maximum(np.asarray(share) - 0.5 / examples, 0), examples)


def spread_of(spread: float, share: float) -> float:
    """A spread that is given for a share of one half, at another share: the same in angles."""
    return 2 * spread * math.sqrt(max(0.0, share * (1 - share)))


class Fall(NamedTuple):
    """How far figures lie below those of peers: a moderated t-test, of one figure or of an array of them.

    Attributes:
        by: the peers' mean less the figure; negative if it is higher.
        variance: between peers.
        peers: how many there are.
        step: what half an example is worth; of few, a share moves in large steps.
    """

    by: Any
    variance: Any
    peers: int
    step: Any = 0.0

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return freedom_of(self.peers)

    @property
    def deviations(self) -> Any:
        """``by``, in standard deviations of what one more of the peers does."""
        return _ratio(self.by, self.variance * (1 + 1 / self.peers))

    def deviations_within(self, margin: Any, most: Any) -> Any:
        """By how many standard deviations it fell less than a model does that is worse by a margin.

        Args:
            margin: in the unit of the figures.
            most: the largest variance that so much worse a model may have.
        """
        return _ratio(margin - self.by - self.step, np.maximum(self.variance, most) + self.variance / self.peers)

    def chance(self) -> float:
        """How likely a figure so low, or lower, is for one more of the peers."""
        return student_tail(float(self.deviations), self.freedom)

    def chance_within(self, margin: float, most: float) -> float:
        """How likely a figure so high, or higher, is for a model that is worse by a margin."""
        return student_tail(float(self.deviations_within(margin, most)), self.freedom)


def fall_of(peers: npt.ArrayLike, value: npt.ArrayLike, expected: npt.ArrayLike) -> Fall:
    """How far figures lie below their peers'.

    Args:
        peers: the figures of each, (n, …), at least two.
        value: of the one that is judged, (…).
        expected: the variance that is expected between peers, (…).
    """
    known, own = np.asarray(peers, np.float64), len(np.asarray(peers)) - 1
    mixed = (_EXPECTED_WEIGHT * np.asarray(expected) + own * known.var(axis=0, ddof=1)) / (_EXPECTED_WEIGHT + own)
    return Fall(known.mean(axis=0) - value, np.maximum(mixed, _LEAST * np.asarray(expected)), own + 1)


def freedom_of(peers: int) -> int:
    """Degrees of freedom of a test by so many peers."""
    return min(_EXPECTED_WEIGHT + peers - 1, _MOST_FREEDOM)


def _ratio(value: Any, variance: Any) -> Any:
    """Deviations; without a variance, infinitely many."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(variance) > 0, value / np.sqrt(variance), np.where(np.asarray(value) > 0, 1e9, -1e9))


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


@functools.cache
def student_quantile(rate: float, freedom: float) -> float:
    """What Student's variable exceeds with this probability; below one half."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > rate else (low, middle)
    return high


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
