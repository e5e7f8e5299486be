"""What chance does to a figure of a model: the examples that it is judged on, and the seed of its training.

A candidate's figure is compared with the mean over the known trainings of the reference's recipe, on the same examples.
The variance of that difference has two parts. The examples: the difference is a mean over them. The
seed: each training is a little better or worse in the long run, by a variance that the known trainings show. It is
given for a share of one half; of a share r it is 4 r (1 - r) times that.

All functions take floats or arrays of figures, and are pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

NIGHTS = 365
"""The number of comparisons that share the error budget of a year."""
MOST_TRAININGS = 20
"""No more trainings of a recipe are asked for their figures."""
MEASURED = 4
"""From this many trainings on, the spread between seeds is known; of fewer it is assumed."""

# The spread that the settings assume weighs as much as this many trainings.
_ASSUMED = 3
# The share of equally good models that may miss a margin; the rest of one in ten is for what is not quite normal.
_MISSED = 0.06
# The variance that parts show is raised by this factor, and by its standard error.
_CAUTION = 1.4
# Classes do not vary quite independently, so the whole varies more than their mean would.
_DEPENDENT = 1.5
# Pseudo-examples that keep a share away from 0 and 1.
_PRIOR_EXAMPLES = 10.0


class Prior(NamedTuple):
    """The spread between seeds that is assumed beforehand.

    Attributes:
        trainings: the expected spread weighs as much as this many trainings.
        least: the spread is never taken for less than this part of the expected variance.
        freedom: Student's degrees of freedom of what a seed does: how heavy its tails are.
    """

    trainings: int
    least: float
    freedom: float


WHOLE = Prior(_ASSUMED, 0.25, 6.0)
# What all classes show tells more of a class than its own figures; a single one has heavier tails than their mean.
PART = Prior(6, 0.5, 4.5)


@dataclass(frozen=True)
class Noise:
    """The noise of a figure, or of an array of them.

    Attributes:
        share: the mean of the figure over the known trainings.
        examples: how many the figure is a share of; infinite where it is no share.
        answers: the variance that the luck of single answers gives to the figure of one training.
        seeds: the variance of the figure's long-run value between trainings, for a share of one half.
        trainings: how many are known.
        freedom: see :class:`Prior`.
    """

    share: Any
    examples: Any
    answers: Any
    seeds: Any
    trainings: int
    freedom: float = WHOLE.freedom

    def at(self, place: int) -> Noise:
        """Return the noise of one figure of an array."""
        parts = {name: float(getattr(self, name)[place]) for name in ("share", "examples", "answers", "seeds")}
        return replace(self, **parts)

    @property
    def equal(self) -> Any:
        """Return the variance of the difference from an equally good model."""
        return (self.answers + self._seeds_at(self.share)) * (1 + 1 / self.trainings)

    def beyond(self, sampled: Any, rate: float) -> Any:
        """Return how large a difference must be that equally good models show with a probability of ``rate``.

        Args:
            sampled: the variance of the difference by examples, as observed.
            rate: the probability, one-sided.
        """
        seeds = self._seeds_at(self.share) * (1 + 1 / self.trainings)
        return self._quantile(rate, sampled, seeds) * np.sqrt(sampled + seeds)

    def room(self, change: Any, sampled: Any, rate: float) -> Any:
        """Return by how much the pessimistic end of a difference lies below the difference itself.

        A model that is worse by m answers other examples wrongly, at least a share m of them, and varies more between
        seeds. So the variance is that of a model at the pessimistic end, found by iteration. For the examples it is a
        quadratic equation, as in Wilson's interval of a share.

        Args:
            change: the candidate's figure minus ``share``.
            sampled: the variance of the change by examples, as observed.
            rate: the probability that a model as bad as the pessimistic end shows so good a figure.
        """
        room = np.maximum(-np.asarray(change, float), 0.0)
        for _ in range(10):
            worse = self.share - np.maximum(room - change, 0.0)
            seeds = self._seeds_at(worse) + self._seeds_at(self.share) / self.trainings
            others = np.maximum(room * (1 + 2 * change) - room**2, 0.0) / self.examples
            quantile = self._quantile(rate, sampled + others, seeds)
            by_example = quantile**2 / self.examples
            square, linear = 1 + by_example, by_example * (1 + 2 * change)
            constant = quantile**2 * (sampled + seeds)
            room = (linear + np.sqrt(linear**2 + 4 * square * constant)) / (2 * square)
        return room

    def margin(self, missed: float, rate: float) -> Any:
        """Return the smallest margin that equally good models are shown to be within, but for a share of them.

        Args:
            missed: that share; see :func:`missed`.
            rate: see :meth:`room`.
        """
        sampled = self.answers * (1 + 1 / self.trainings)
        quantile = self._quantile(missed, sampled, self.equal - sampled)
        fall = quantile * np.sqrt(self.equal)
        # How many answers differ is itself a matter of chance.
        more = sampled + quantile / 2 * np.sqrt(sampled) / self.examples
        return fall + self.room(-fall, more, rate)

    def _seeds_at(self, share: Any) -> Any:
        return self.seeds * scale(share, self.examples)

    def _quantile(self, rate: float, sampled: Any, seeds: Any) -> Any:
        """Return Student's quantile; only the part of the variance that seeds have is estimated (Satterthwaite).

        Few trainings tell little of their spread, and many do not tell how long its tails are.
        """
        part = np.maximum(seeds, 1e-12) / np.maximum(sampled + seeds, 1e-12)
        return -stdtrit(np.minimum(self.freedom / part**2, 1e6), rate)


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
        freedom = min((WHOLE.freedom + self.trainings - 1) / max(part, 1e-9) ** 2, 1e6)
        half = -float(stdtrit(freedom, 0.025)) * deviation
        p_value = 2 * float(stdtr(freedom, -abs(value) / deviation)) if deviation else float(value == 0)
        return value - half, value + half, p_value


def missed(figures: int, *, main: bool) -> float:
    """Return which share of equally good models may miss a figure's margin, so that nine of ten miss none.

    Half of them are for the metric that counts, so that its margin is the narrower one.

    Args:
        figures: how many a promotion looks at; all must be within their margins.
        main: whether it is the metric that counts.
    """
    return _MISSED / 2 if main else _MISSED / 2 / max(1, figures - 1)


def scale(share: Any, examples: Any) -> Any:
    """Return the variance between seeds at a share as a multiple of that at one half; 1 for no share."""
    finite = np.isfinite(examples)
    count = np.where(finite, examples, 1.0)
    inner = (np.clip(share, 0.0, 1.0) * count + _PRIOR_EXAMPLES / 2) / (count + _PRIOR_EXAMPLES)
    return np.where(finite, 4 * inner * (1 - inner), 1.0)


def answers_of(share: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the variance that the luck of single answers gives to one training's share.

    Two trainings agree about most examples: half of a binomial variance is expected, and weighs as three trainings.

    Args:
        share: the mean over the known trainings.
        examples: how many the share is of.
        within: the mean over the examples of the variance between trainings; anything if one training is known.
        trainings: how many are known.
    """
    expected = scale(share, examples) / 8
    return (_ASSUMED * expected + (trainings - 1) * np.where(trainings > 1, within, 0.0)) / (
        (_ASSUMED + trainings - 1) * examples
    )


def seeds_of(known: Any, examples: Any, answers: Any, expected: Any, prior: Prior = WHOLE) -> Any:
    """Return the variance between seeds that known trainings show, mixed with what is expected.

    Args:
        known: the figures of each training, (trainings, …).
        examples: see :class:`Noise`.
        answers: see :class:`Noise`.
        expected: the variance between seeds that is expected, for a share of one half.
        prior: how much that counts.
    """
    values = np.asarray(known, float)
    trainings, at = len(values), scale(values.mean(axis=0), examples)
    observed = values.var(axis=0, ddof=1) if trainings > 1 else 0.0
    weight = prior.trainings
    mixed = (weight * (expected * at + answers) + (trainings - 1) * observed) / (weight + trainings - 1)
    return np.maximum((mixed - answers) / at, prior.least * np.asarray(expected))


def expected_of_parts(known: Any, examples: Any, answers: Any, spread: float, *, cautious: bool = False) -> float:
    """Return the variance between seeds that is expected of a class or joint: what is assumed, and what all parts show.

    Args:
        known: the shares of each training and part, (trainings, parts).
        examples: of each part.
        answers: see :class:`Noise`.
        spread: the standard deviation that the settings assume, for a share of one half.
        cautious: whether it must not be too little, as for rates of one in thousands.
    """
    values = np.asarray(known, float)
    trainings, parts = values.shape
    if trainings == 1:
        return spread**2
    weight = parts * (trainings - 1)
    # What few parts and trainings show may well be too little, and the more so with heavy tails.
    observed = values.var(axis=0, ddof=1) * (_CAUTION + np.sqrt(2 / weight) if cautious else 1.0)
    shown = max(0.0, float(np.mean((observed - answers) / scale(values.mean(axis=0), examples))))
    return (_ASSUMED * spread**2 + weight * shown) / (_ASSUMED + weight)


def expected_of_whole(spread: float, of_part: float, parts: int) -> float:
    """Return the variance between seeds that is expected of the figure over all parts.

    Args:
        spread: the standard deviation that moves all parts together, by the settings.
        of_part: the variance of a single part; see :func:`expected_of_parts`.
        parts: how many there are; if none, only the first counts.
    """
    return spread**2 + (of_part * _DEPENDENT / parts if parts else 0.0)
