"""The noise in a model's figure: from the test examples and from the seed of its training.

A candidate's figure is compared with the mean over the known trainings of the reference's recipe, on the same examples.
Two trainings of one recipe differ by the *luck* of single answers, and by their *seed*, which makes a training a little
better or worse in the long run. Models of two recipes also differ in which examples they find hard; that part, and the
luck of the known trainings, is the same on all nights of a year.

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
"""No more trainings of a recipe are asked for their figures."""
MEASURED = 4
"""From this many trainings on, the spread between seeds is known; of fewer it is assumed."""

# The spread that is assumed weighs as much as this many trainings, and so does what all classes together show of one.
_ASSUMED, _ALIKE = 3, 5
# Student's degrees of freedom of what a seed does: its tails may be this heavy.
_TAILS = 5.0
# The shares of equally good models that may miss the margin of the metric that counts, and any other margin.
_MISSED, _OTHERS_MISSED = 0.065, 0.05
# Pseudo-examples that keep a share away from 0 and 1.
_PRIOR_EXAMPLES = 10.0
_DRAWS = 20_000
# Parts of a variance, from 0 to 1.
_PARTS = np.linspace(0.0, 1.0, 9)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """The noise of a figure.

    Attributes:
        share: the mean of the figure over the known trainings.
        examples: how many the figure is a share of; infinite where it is no share.
        luck: the variance that the luck of single answers gives to the figure of one training.
        seeds: the variance that the seed gives to it.
        trainings: how many are known.
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
        """Return how large a change must be that equally good models show on a night of a year with at most a rate.

        Args:
            sampled: the variance of the change by the examples, as observed.
            rate: the probability.
        """
        return self._limit(rate, self.luck + self.seeds, self._every_night(sampled))

    def room(self, change: Any, sampled: Any, rate: float) -> Any:
        """Return by how much the pessimistic end of a change lies below the change itself, found by iteration.

        A share that is worse varies more, and a model that is worse by m answers other examples wrongly, at least a
        share m of them.

        Args:
            change: the candidate's figure minus ``share``.
            sampled: the variance of the change by the examples, as observed.
            rate: the probability that a recipe as bad as the pessimistic end shows so good a figure within a year.
        """
        room = np.asarray(0.0)
        for _ in range(8):
            worse = np.maximum(room - change, 0.0)
            own = (self.luck + self.seeds) * self._scale(worse)
            room = self._limit(rate, own, self._every_night(sampled) + worse / self.examples)
        return room

    def margin(self, missed: float, rate: float) -> float:
        """Return the smallest margin that equally good models are shown to be within, but for a share of them.

        Args:
            missed: that share; see :func:`missed`.
            rate: see :meth:`room`.
        """
        quantile, fall = -float(stdtrit(_TAILS / self._uncertain, missed)), 0.0
        for _ in range(3):
            fall = quantile * math.sqrt(self.equal * self._scale(fall))
        luck = self.luck * (1 + 1 / self.trainings)
        # How many answers differ is itself a matter of chance.
        return fall + float(self.room(-fall, luck + quantile * math.sqrt(luck) / self.examples, rate))

    def _scale(self, worse: Any) -> Any:
        """Return the variance of a share that is worse, as a multiple of that of the present one."""
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
        """The part of the variance that is estimated, and may have heavy tails: that of the seed."""
        return max(self.seeds / max(self.luck + self.seeds, 1e-300), 1e-2)


class Seeds(NamedTuple):
    """The known spread between trainings that differ in their seed alone.

    Attributes:
        variance: that the seed gives to a figure of one training, at the figure's present value.
        trainings: how many tell of it; if they are too few, it is assumed.
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
            sampled: its variance by the examples.
        """
        seeds = 2 * self.variance
        deviation, part = math.sqrt(sampled + seeds), seeds / max(sampled + seeds, 1e-300)
        # Satterthwaite's degrees of freedom.
        freedom = min((_TAILS + self.trainings - 1) / max(part, 1e-9) ** 2, 1e6)
        half = -float(stdtrit(freedom, 0.025)) * deviation
        p_value = 2 * float(stdtr(freedom, -abs(value) / deviation)) if deviation else float(value == 0)
        return value - half, value + half, p_value


def missed(figures: int, *, main: bool) -> float:
    """Return which share of equally good models may miss a figure's margin, so that nine of ten miss none.

    Args:
        figures: how many a promotion looks at; all must be within their margins.
        main: whether it is the metric that counts.
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

    Two trainings agree about most examples: two thirds of a binomial variance are expected. That weighs as much as
    three trainings.

    Args:
        share: the mean over the known trainings.
        examples: how many the share is of.
        within: the mean over the examples of the variance between trainings; anything if one training is known.
        trainings: how many are known.
    """
    return luck_within(scale(share, examples) / 4, examples, within, trainings)


def luck_within(variance: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the variance that the luck of single answers gives to one training's mean over examples.

    Args:
        variance: of the values of one training, between examples; see :func:`luck_of`.
        examples: how many there are.
        within: the mean over the examples of the variance between trainings; anything if one training is known.
        trainings: how many are known.
    """
    more = trainings - 1
    return (_ASSUMED * variance * 2 / 3 + (more * within if more else 0.0)) / (_ASSUMED + more) / examples


def seeds_of(known: Floats, examples: Any, luck: Any, spread: float) -> Floats:
    """Return the variance that the seed gives to each figure of one training, (figures,).

    What is assumed, what all figures show and what a figure itself shows are mixed.

    Args:
        known: figures of each training: one, or one for each class or joint, (trainings, figures).
        examples: of each figure.
        luck: of each figure; see :class:`Noise`.
        spread: the standard deviation that is assumed, for a share of one half.
    """
    at, more, figures = scale(known.mean(axis=0), examples), len(known) - 1, known.shape[1]
    observed = known.var(axis=0, ddof=1) - luck if more else np.zeros(figures)
    alike = (_ASSUMED * spread**2 + more * (observed / at).sum()) / (_ASSUMED + more * figures)
    mixed = (_ALIKE * alike * at + more * observed) / (_ALIKE + more)
    return np.maximum(mixed, np.maximum(alike * at, _ASSUMED / (_ASSUMED + more) * spread**2 * at) / 4)


@functools.cache
def _limits(rate: float, known: float, tails: float) -> Floats:
    """Return the limits, in standard deviations, that noise exceeds in a year with a probability, by :data:`_PARTS`.

    The parts are those of the variance that is the same on every night. Drawn: the largest of a year's nights, what is
    the same on all of them, and how well the standard deviation is known.

    Args:
        rate: the probability.
        known: the degrees of freedom of the standard deviation.
        tails: those of a single night.
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
