"""A model of the random difference between two models' metrics, due to the test examples and the seeds; closed form.

Two trainings of one recipe differ by *luck* (random differences in single answers) and by *seed* (one training is
slightly better overall). The variance of luck follows from the answers; luck is normal. The variance of seeds is an
estimate from few trainings, so its limits are those of Student's distribution with :data:`TAILS` degrees of freedom.
The limit of the sum is the root of the sum of squares. ``simulations/promotion.py`` checks the probabilities.

All functions are pure; metrics may be floats or arrays. *Known trainings* are the reference and further trainings of
its recipe.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from podline.base.arrays import Floats
from podline.recipes.kind_table import facts_named

NIGHTS = 365
"""The number of promotions (one each night) that share the error probability of a year."""
MOST_TRAININGS = 20
"""The largest number of trainings of a recipe with which a candidate is compared."""
MEASURED = 3
"""From this number of trainings on, the spread between seeds counts as measured; with fewer, it is assumed."""
TAILS = 4.5
"""The degrees of freedom of Student's distribution for the effect of seeds."""

# The assumed spread has the weight of 3 trainings; for a single class, the spread of all classes has the weight of 5.
_ASSUMED, _ALIKE = 3, 5
# The variance of luck as a share of the binomial variance; about a third was measured on CIFAR-10.
_LUCKY = 0.5
# Pseudo-examples that keep a share away from 0 and 1.
_PRIOR_EXAMPLES = 10.0


class Noise(NamedTuple):
    """The random variation of a candidate's metric minus the mean over the known trainings.

    Attributes:
        luck: variance of one training's metric due to random differences in single answers.
        seeds: variance of one training's metric due to the seed.
        trainings: number of known trainings.
    """

    luck: float
    seeds: float
    trainings: int

    @property
    def measured(self) -> bool:
        """Return whether there are enough trainings to measure the spread between seeds."""
        return self.trainings >= MEASURED

    def limit(self, sampled: Any, probability: float) -> Any:
        """Return the change (above 0) that an equally good model exceeds with at most ``probability``; one-sided.

        Args:
            sampled: observed variance of the change due to the choice of the examples.
            probability: from 0 to one half.
        """
        by_examples, by_seeds = self._variances(sampled)
        normal, heavy = ndtri(probability) ** 2, stdtrit(TAILS, probability) ** 2
        return np.sqrt(normal * by_examples + heavy * by_seeds)

    def usual(self, sampled: Any, probability: float) -> Any:
        """Return the change that a share ``probability`` of equally good models exceeds; one-sided, all normal."""
        return -float(ndtri(probability)) * np.sqrt(sum(self._variances(sampled)))

    def scaled(self, factor: Any) -> Noise:
        """Return the noise with both variances multiplied by ``factor``."""
        return Noise(self.luck * factor, self.seeds * factor, self.trainings)

    def _variances(self, sampled: Any) -> tuple[Any, Any]:
        more = 1 + 1 / self.trainings
        return np.maximum(sampled, self.luck * more), self.seeds * more


class Spread(NamedTuple):
    """Assumed standard deviations of a metric between seeds, at a value of one half, without luck (see :class:`Noise`).

    Attributes:
        main: of the main metric.
        part: of the metric of a class or joint.
    """

    main: float
    part: float


_UNKNOWN = Spread(0.005, 0.02)


def assumed_spread(kind: str, classes: int) -> Spread:
    """Return the spread between seeds that was measured with a kind and similarly many classes, or a default."""
    fitting = [Spread(main, part) for least, main, part in facts_named(kind).seed_spreads if classes >= least]
    return fitting[-1] if fitting else _UNKNOWN


def nightly(rate: float) -> float:
    """Return the probability per night that gives the probability ``rate`` within a year of independent nights."""
    return -math.expm1(math.log1p(-rate) / NIGHTS)


def scale(share: Any, examples: Any) -> Any:
    """Return the binomial variance of a share, relative to a share of one half; 1 for infinite ``examples``."""
    if np.all(np.isinf(examples)):
        return np.ones(np.shape(share))
    inner = (np.clip(share, 0.0, 1.0) * examples + _PRIOR_EXAMPLES / 2) / (examples + _PRIOR_EXAMPLES)
    return 4 * inner * (1 - inner)


def luck_of(variance: Any, examples: Any, within: Any, trainings: int) -> Any:
    """Return the luck of one training: the variance of its mean over examples, due to random single answers.

    Two trainings agree on most examples. So half of the variance between examples is assumed, with the weight of three
    trainings.

    Args:
        variance: variance of one training's values between examples; a quarter of :func:`scale` for a share.
        examples: number of examples.
        within: mean over the examples of the variance between trainings; ignored for one training.
        trainings: number of known trainings.
    """
    more = trainings - 1
    return (_ASSUMED * variance * _LUCKY + (more * within if more else 0.0)) / (_ASSUMED + more) / examples


def seeds_of(known: Floats, examples: Any, luck: Any, spread: float) -> Floats:
    """Return the variance of each metric of one training due to the seed, (metrics,).

    The estimate combines the assumed spread, the spread of all metrics, and the spread of each single metric.

    Args:
        known: the main metric of each training, or one metric per class or joint, (trainings, metrics).
        examples: number of examples of each metric.
        luck: luck of each metric; see :class:`Noise`.
        spread: assumed standard deviation between seeds, for a share of one half.
    """
    at, more, figures = scale(known.mean(axis=0), examples), len(known) - 1, known.shape[1]
    observed = (known.var(axis=0, ddof=1) - luck) / at if more else np.zeros(figures)
    least = _ASSUMED / (_ASSUMED + more) * spread**2
    alike = max(least, (_ASSUMED * spread**2 + more * observed.sum()) / (_ASSUMED + more * figures))
    return at * np.maximum(alike / 2, (_ALIKE * alike + more * observed) / (_ALIKE + more) if figures > 1 else alike)
