"""Differences of two models, with what chance does to them: the examples that they are judged on, and the seed.

Two models judged on the same examples are wrong on many of the same ones: looking at what only one of them got right
tells far smaller differences from chance than two intervals side by side do. Two trainings of one recipe differ as
well, by their seed; see :mod:`podline.noise`. Pure functions; no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from podline.documents.metric import Metric
from podline.frozen import Frozen
from podline.intervals import Z
from podline.noise import Seeds

LEVEL = 0.05
"""A difference that chance gives in fewer than one of twenty comparisons of equal models is not called noise."""
PART_LEVEL = 0.01
"""That of all classes or joints together: they are looked at besides."""

Key = TypeVar("Key")
Chance = Literal["noise", "seed", "beyond"]
CHANCES: dict[Chance, str] = {
    "noise": "could be noise",
    "seed": "may be caused by the seed, whose spread is not known",
    "beyond": "more than noise",
}


class Difference(Frozen):
    """After minus before.

    Attributes:
        value: of the figure.
        low: its 95 % interval, by the examples and the seeds …
        high: … from low to high.
        p_value: how often chance gives a difference at least so large, between models that are equally good.
        trainings: how many trainings tell of the spread between seeds.
        seeds_known: whether they are enough.
        paired: whether both were judged on the same examples.
        examples: how many both were judged on; the smaller number where these are not the same.
        gained: examples that only the second got right; None where examples are not right or wrong, or not the same.
        lost: examples that only the first got right, or None.
    """

    value: float
    low: float
    high: float
    p_value: float
    trainings: int
    seeds_known: bool
    paired: bool
    examples: int
    gained: int | None = None
    lost: int | None = None

    @property
    def chance(self) -> Chance:
        """Return whether chance explains it, the seed may explain it, or neither does."""
        return chance_of(self.p_value, known=self.seeds_known)

    @property
    def method(self) -> str:
        """The statistical test, in words."""
        examples = "on the same examples" if self.paired else "by two intervals, since the examples are not the same"
        if not self.seeds_known:
            return f"{examples}; the spread between seeds is assumed"
        return f"{examples}; the spread between seeds is that of {self.trainings} trainings"


def chance_of(p_value: float, *, known: bool, level: float = LEVEL) -> Chance:
    """Return what to think of a p-value, given whether the spread between seeds is known."""
    return "noise" if p_value >= level else "beyond" if known else "seed"


def sampled_change(nets: npt.NDArray[np.int64], examples: int) -> float:
    """Return the variance that the examples give to the change of a share of right answers between equal models.

    Agresti and Min: "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine
    2005: one half of an example is added to each of the four kinds; without seeds it is nearly McNemar's test.

    Args:
        nets: of each example, or of each image with its people, what was gained less what was lost, (n,).
        examples: how many examples or people there are.
    """
    return float(((nets**2).sum() + 1) / (examples + 2) ** 2)


class ShareChange(NamedTuple):
    """The change of a class or a joint between two models.

    Attributes:
        before: the share of right answers, or of labelled joints that are close, of the first model.
        after: that of the second.
        sampled: the variance of the change by the examples; of a joint, by images: people of one image are found or
            not found together.
    """

    before: float
    after: float
    sampled: float

    @classmethod
    def of(cls, was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_], nets: npt.NDArray[np.int64]) -> ShareChange:
        """Return the change of a share.

        Args:
            was: of each example, whether the first model got it right, (n,).
            now: whether the second did.
            nets: see :func:`sampled_change`.
        """
        return cls(float(was.mean()), float(now.mean()), sampled_change(nets, len(now)))

    @property
    def change(self) -> float:
        """By how much the share rises."""
        return self.after - self.before


def accuracies(right_before: npt.ArrayLike, right_after: npt.ArrayLike, seeds: Seeds) -> Difference:
    """Return the difference of the accuracies of two classifiers on the same examples.

    Args:
        right_before: of each example, whether the first model got it right, (n,).
        right_after: whether the second model did.
        seeds: what a seed does to an accuracy.

    Raises:
        ValueError: they are not of the same examples.
    """
    before, after = np.asarray(right_before, bool), np.asarray(right_after, bool)
    if before.shape != after.shape:
        raise ValueError(f"{before.shape} vs {after.shape} examples are not the same")
    nets = after.astype(int) - before
    found = difference(float(nets.mean()), sampled_change(nets, len(nets)), seeds, len(nets), paired=True)
    return found.model_copy(
        update={
            "low": max(-1.0, found.low),
            "high": min(1.0, found.high),
            "gained": int((nets > 0).sum()),
            "lost": int((nets < 0).sum()),
        }
    )


def unpaired(before: Metric, after: Metric, examples: int, seeds: Seeds) -> Difference:
    """Return the difference of two figures with intervals of their own, on examples that are not the same."""
    sampled = sampling_variance(before) + sampling_variance(after)
    return difference(after.value - before.value, sampled, seeds, examples, paired=False)


def sampling_variance(metric: Metric) -> float:
    """Return the variance of a figure by its examples, from its interval."""
    return ((metric.high - metric.low) / (2 * Z)) ** 2


def difference(value: float, sampled: float, seeds: Seeds, examples: int, *, paired: bool) -> Difference:
    """Return a difference with its interval."""
    low, high, p_value = seeds.interval(value, sampled)
    return Difference(
        value=value,
        low=low,
        high=high,
        p_value=p_value,
        trainings=seeds.trainings,
        seeds_known=seeds.known,
        paired=paired,
        examples=examples,
    )


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Return chances of several tests, raised so that each can be held against the rate meant for all together.

    Holm: "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979: the
    smallest times how many there are, the next times one less, and so on, never falling. If nothing is wrong, one of
    them lies below a rate with no more than that probability, whatever they have to do with each other.
    """
    raised, reached = {}, 0.0
    for place, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        reached = max(reached, min(1.0, chances[key] * (len(chances) - place)))
        raised[key] = reached
    return {key: raised[key] for key in chances}


def chances(parts: Mapping[str, ShareChange], seeds: Mapping[str, Seeds]) -> dict[str, float]:
    """Return how likely so large a movement of each class or joint is by chance, all of them considered."""
    return holm({name: seeds[name].interval(part.change, part.sampled)[2] for name, part in parts.items()})
