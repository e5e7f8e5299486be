"""Models the noise in a model's figure: from the test examples and from the seed of its training.

A candidate's figure is compared with the mean over the known trainings of the reference's recipe, on the same examples.
Two trainings of one recipe differ by the *luck* of single answers, and by their *seed*, which makes a training slightly
better or worse overall. Models of two recipes also differ in the examples that they find hard; that part, and the luck
of the known trainings, is the same on all nights of a year.

All functions are pure; figures may be floats or arrays.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

NIGHTS = 365
"""The number of comparisons that share the error budget of a year."""
MOST_TRAININGS = 20
"""Largest number of a recipe's trainings whose figures are used."""
MEASURED = 4
"""Number of trainings from which on the spread between seeds is known; below it is assumed."""

# The assumed spread weighs as much as this many trainings, and so does the spread of all classes together for one
# class.
_ASSUMED, _ALIKE = 3, 5
# Student's degrees of freedom of the effect of a seed, which allows for heavy tails.
_TAILS = 5.0
# Shares of equally good models that may miss the margin of the main metric, and any other margin.
_MISSED, _OTHERS_MISSED = 0.065, 0.05
# Pseudo-examples that keep a share away from 0 and 1.
_PRIOR_EXAMPLES = 10.0
_DRAWS = 20_000
# Shares of a variance, from 0 to 1.
_PARTS = np.linspace(0.0, 1.0, 9)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """The noise of a figure.

    Attributes:
        share: mean of the figure over the known trainings.
        examples: number of examples of a share; infinite for other figures.
        luck: variance of one training's figure by the luck of single answers.
        seeds: variance of one training's figure by the seed.
        trainings: number of known trainings.
    """

    share: float
    examples: float
    luck: float
    seeds: float
    trainings: int

    @property
    def equal(self) -> float:
        """Return the variance of the difference from an equally good model of the same recipe."""
        return (self.luck + self.seeds) * (1 + 1 / self.trainings)

    def beyond(self, sampled: Any, rate: float) -> Any:
        """Return the change that equally good models exceed on any night of a year with at most a probability.

        Args:
            sampled: observed variance of the change by the examples.
            rate: the probability.
        """
        return self._limit(rate, self.luck + self.seeds, self._every_night(sampled))

    def room(self, change: Any, sampled: Any, rate: float) -> Any:
        """Return the distance from a change to its pessimistic bound, found by iteration.

        A worse share varies more, and a model that is worse by m answers at least a share m of other examples wrongly.

        Args:
            change: the candidate's figure minus ``share``.
            sampled: observed variance of the change by the examples.
            rate: probability that a recipe at the pessimistic bound shows as good a figure within a year.
        """
        room = np.asarray(0.0)
        for _ in range(8):
            worse = np.maximum(room - change, 0.0)
            own = (self.luck + self.seeds) * self._scale(worse)
            room = self._limit(rate, own, self._every_night(sampled) + worse / self.examples)
        return room

    def margin(self, missed: float, rate: float) -> float:
        """Return the smallest margin within which all but a share of equally good models are shown to be.

        Args:
            missed: the share; see :func:`missed`.
            rate: see :meth:`room`.
        """
        quantile, fall = -float(stdtrit(_TAILS / self._uncertain, missed)), 0.0
        for _ in range(3):
            fall = quantile * math.sqrt(self.equal * self._scale(fall))
        luck = self.luck * (1 + 1 / self.trainings)
        # The number of different answers is itself random.
        return fall + float(self.room(-fall, luck + quantile * math.sqrt(luck) / self.examples, rate))

    def _scale(self, worse: Any) -> Any:
        """Return the variance of a worse share, as a multiple of that of the present one."""
        return scale(self.share - worse, self.examples) / scale(self.share, self.examples)

    def _every_night(self, sampled: Any) -> Any:
        """Return the variance of the part that is equal on every night of a year."""
        luck = self.luck * (1 + 1 / self.trainings)
        return (self.luck + self.seeds) / self.trainings + np.maximum(sampled - luck, 0.0)

    def _limit(self, rate: float, own: Any, every_night: Any) -> Any:
        known = (_ALIKE + self.trainings - 1) / self._uncertain
        limits = _limits(rate, _step(known), _step(_TAILS / self._uncertain))
        return np.interp(every_night / (own + every_night), _PARTS, limits) * np.sqrt(own + every_night)

    @property
    def _uncertain(self) -> float:
        """Return the seed's share of the variance; it is an estimate, so its error has heavy tails."""
        return max(self.seeds / max(self.luck + self.seeds, 1e-300), 1e-2)


class Seeds(NamedTuple):
    """The spread between trainings that differ only in the seed.

    Attributes:
        variance: variance of one training's figure by the seed, at the figure's present value.
        trainings: number of trainings that show it; with too few, it is assumed.
    """

    variance: float
    trainings: int

    @property
    def known(self) -> bool:
        """Return whether enough trainings show the spread to call a difference more than chance."""
        return self.trainings >= MEASURED

    def interval(self, value: float, sampled: float) -> tuple[float, float, float]:
        """Return the ends of the 95 % interval of a difference of two trainings, and its two-sided p-value.

        Args:
            value: the difference.
            sampled: variance of the difference by the examples.
        """
        seeds = 2 * self.variance
        deviation, part = math.sqrt(sampled + seeds), seeds / max(sampled + seeds, 1e-300)
        # Satterthwaite's degrees of freedom.
        freedom = min((_TAILS + self.trainings - 1) / max(part, 1e-9) ** 2, 1e6)
        half = -float(stdtrit(freedom, 0.025)) * deviation
        p_value = 2 * float(stdtr(freedom, -abs(value) / deviation)) if deviation else float(value == 0)
        return value - half, value + half, p_value


def missed(figures: int, *, main: bool) -> float:
    """Return the share of equally good models that may miss one figure's margin, so that nine of ten miss none.

    Args:
        figures: number of figures of a promotion, which all must be within their margins.
        main: whether this is the main metric.
    """
    return _MISSED if main else _OTHERS_MISSED / max(1, figures - 1)


def scale(share: Any, examples: Any) -> Any:
    """Return the variance of a share as a multiple of that of one half; 1 for no share."""
    if np.all(np.isinf(examples)):
        return np.ones(np.shape(share))
    inner = (np.clip(share, 0.0, 1.0) * examples + _PRIOR_EXAMPLES / 2) / (examples + _PRIOR_EXAMPLES)
    return 4 * inner * (1 - inner)


def luck_of(share: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the variance of one training's share that comes from random single answers.

    Two trainings agree about most examples, so two thirds of a binomial variance are expected. This expectation weighs
    as much as three trainings.

    Args:
        share: mean over the known trainings.
        examples: number of examples of the share.
        within: mean over the examples of the variance between trainings; ignored for one training.
        trainings: number of known trainings.
    """
    return luck_within(scale(share, examples) / 4, examples, within, trainings)


def luck_within(variance: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the variance of one training's mean over examples by the luck of single answers.

    Args:
        variance: variance of one training's values between examples; see :func:`luck_of`.
        examples: number of examples.
        within: mean over the examples of the variance between trainings; ignored for one training.
        trainings: number of known trainings.
    """
    more = trainings - 1
    return (_ASSUMED * variance * 2 / 3 + (more * within if more else 0.0)) / (_ASSUMED + more) / examples


def seeds_of(known: Floats, examples: Any, luck: Any, spread: float) -> Floats:
    """Return the variance by the seed of each figure of one training, (figures,).

    It combines the assumption, the spread of all figures and the figure's own spread.

    Args:
        known: figures of each training: one, or one per class or joint, (trainings, figures).
        examples: number of examples of each figure.
        luck: luck of each figure; see :class:`Noise`.
        spread: assumed standard deviation, for a share of one half.
    """
    at, more, figures = scale(known.mean(axis=0), examples), len(known) - 1, known.shape[1]
    observed = known.var(axis=0, ddof=1) - luck if more else np.zeros(figures)
    alike = (_ASSUMED * spread**2 + more * (observed / at).sum()) / (_ASSUMED + more * figures)
    mixed = (_ALIKE * alike * at + more * observed) / (_ALIKE + more)
    return np.maximum(mixed, np.maximum(alike * at, _ASSUMED / (_ASSUMED + more) * spread**2 * at) / 4)


@functools.cache
def _limits(rate: float, known: float, tails: float) -> Floats:
    """Return the limits, in standard deviations, that a year's noise exceeds with a probability, by :data:`_PARTS`.

    The parts are shares of the variance that is the same on every night. The simulation draws the largest of a year's
    nights, the common part of all nights, and the uncertainty of the standard deviation.

    Args:
        rate: the probability.
        known: degrees of freedom of the standard deviation.
        tails: degrees of freedom of a single night.
    """
    random = np.random.default_rng(0)
    smallest = -np.expm1(np.log((random.permutation(_DRAWS) + 0.5) / _DRAWS) / NIGHTS)
    largest = -stdtrit(tails, smallest) * math.sqrt((tails - 2) / tails)
    same, sure = random.standard_normal(_DRAWS), np.sqrt(random.chisquare(known, _DRAWS) / known)
    drawn = [(math.sqrt(1 - part) * largest + math.sqrt(part) * same) / sure for part in _PARTS]
    return np.quantile(drawn, 1 - rate, axis=1)


def _step(freedom: float) -> float:
    """Return degrees of freedom rounded down to one of a few values."""
    return float(2 ** (math.floor(8 * math.log2(freedom)) / 8))
