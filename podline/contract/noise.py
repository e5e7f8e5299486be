"""Models chance in the difference of two models' figures: by the test examples, and by the seed. In closed form.

Two trainings of one recipe differ by the *luck* of single answers, and by their *seed*, which makes a training slightly
better or worse overall. Luck is known from the answers, and is normal. The effect of seeds is an estimate with heavy
tails, so its limits are those of Student's variable with :data:`TAILS` degrees of freedom. Both limits are added in
squares. ``simulations/promotion.py`` checks the resulting probabilities.

All functions are pure; figures may be floats or arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from podline.recipes.kind_table import facts_named

NIGHTS = 365
"""The number of comparisons that share the error budget of a year."""
MOST_TRAININGS = 20
"""Largest number of a recipe's trainings whose figures are used."""
MEASURED = 3
"""Number of trainings from which on the spread between seeds counts as measured; below it is assumed."""
TAILS = 4.5
"""Student's degrees of freedom of the effect of seeds."""

# An assumption weighs as much as this many trainings, and so does the spread of all classes for a single class.
_ASSUMED, _ALIKE = 3, 5
# Share of a binomial variance that two trainings' answers differ by; about a third was seen on CIFAR-10.
_LUCKY = 0.5
# Pseudo-examples that keep a share away from 0 and 1.
_PRIOR_EXAMPLES = 10.0

Floats = npt.NDArray[np.float64]


class Noise(NamedTuple):
    """The effect of chance on a candidate's figure minus the mean over the known trainings.

    Attributes:
        luck: variance of one training's figure by the luck of single answers.
        seeds: variance of one training's figure by the seed.
        trainings: number of known trainings.
    """

    luck: float
    seeds: float
    trainings: int

    @property
    def measured(self) -> bool:
        """Return whether enough trainings show the spread between seeds."""
        return self.trainings >= MEASURED

    def limit(self, sampled: Any, probability: float) -> Any:
        """Return the change that an equally good model exceeds, in one direction, with at most a probability.

        Args:
            sampled: observed variance of the change by the examples.
            probability: at most one half.
        """
        by_examples, by_seeds = self._variances(sampled)
        normal, heavy = ndtri(probability) ** 2, stdtrit(TAILS, probability) ** 2
        return np.sqrt(normal * by_examples + heavy * by_seeds)

    def usual(self, sampled: Any, probability: float) -> Any:
        """Return the change that about this share of equally good models exceeds, in one direction."""
        return -float(ndtri(probability)) * np.sqrt(sum(self._variances(sampled)))

    def scaled(self, factor: Any) -> Noise:
        """Return the noise of a figure with a variance that is larger by a factor."""
        return Noise(self.luck * factor, self.seeds * factor, self.trainings)

    def _variances(self, sampled: Any) -> tuple[Any, Any]:
        more = 1 + 1 / self.trainings
        return np.maximum(sampled, self.luck * more), self.seeds * more


class Spread(NamedTuple):
    """The assumed standard deviations between seeds without luck, for a share of one half: of a total and of a part."""

    main: float
    part: float


_UNKNOWN = Spread(0.005, 0.02)


def assumed_spread(kind: str, classes: int) -> Spread:
    """Return the spread between seeds of a kind's models, as measured on data with a similar number of classes."""
    fitting = [Spread(main, part) for least, main, part in facts_named(kind).seed_spreads if classes >= least]
    return fitting[-1] if fitting else _UNKNOWN


def nightly(rate: float) -> float:
    """Return the probability of a night that adds up to a rate within a year of independent nights."""
    return -math.expm1(math.log1p(-rate) / NIGHTS)


def scale(share: Any, examples: Any) -> Any:
    """Return the variance of a share as a multiple of that of one half; 1 for no share."""
    if np.all(np.isinf(examples)):
        return np.ones(np.shape(share))
    inner = (np.clip(share, 0.0, 1.0) * examples + _PRIOR_EXAMPLES / 2) / (examples + _PRIOR_EXAMPLES)
    return 4 * inner * (1 - inner)


def luck_of(variance: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the variance of one training's mean over examples by the luck of single answers.

    Two trainings agree about most examples, so half of the variance is expected. This expectation weighs as much as
    three trainings.

    Args:
        variance: variance of one training's values between examples; a quarter of :func:`scale` for a share.
        examples: number of examples.
        within: mean over the examples of the variance between trainings; ignored for one training.
        trainings: number of known trainings.
    """
    more = trainings - 1
    return (_ASSUMED * variance * _LUCKY + (more * within if more else 0.0)) / (_ASSUMED + more) / examples


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
    observed = (known.var(axis=0, ddof=1) - luck) / at if more else np.zeros(figures)
    least = _ASSUMED / (_ASSUMED + more) * spread**2
    alike = max(least, (_ASSUMED * spread**2 + more * observed.sum()) / (_ASSUMED + more * figures))
    return at * np.maximum(alike / 2, (_ALIKE * alike + more * observed) / (_ALIKE + more) if figures > 1 else alike)
