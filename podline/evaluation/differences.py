"""Differences of two models, and the effect of chance on them: by the evaluated examples, and by the seed.

Two models that are evaluated on the same examples make many of the same mistakes. So examples that only one of them got
right reveal far smaller differences than two separate intervals. Trainings of one recipe also differ by their seed; see
:mod:`podline.noise`. Pure functions; no TensorFlow.
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
"""The p-value below which a difference is not called noise."""
PART_LEVEL = 0.01
"""The p-value for all classes or joints together, which are checked in addition."""

Key = TypeVar("Key")
Chance = Literal["noise", "seed", "beyond"]
CHANCES: dict[Chance, str] = {
    "noise": "could be noise",
    "seed": "may be caused by the seed, whose spread is not known",
    "beyond": "more than noise",
}


class Difference(Frozen):
    """The difference of a figure, after minus before.

    Attributes:
        value: the difference.
        low: lower end of its 95 % interval, by the examples and the seeds …
        high: … and upper end.
        p_value: probability of a difference at least as large between equally good models.
        trainings: number of trainings that show the spread between seeds.
        seeds_known: whether these are enough.
        paired: whether both models were evaluated on the same examples.
        examples: number of common examples; the smaller number if the examples differ.
        gained: number of examples that only the second model got right; None if answers are not right or wrong, or the
            examples differ.
        lost: number of examples that only the first model got right, or None.
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
        """The statistical test as text."""
        examples = "on the same examples" if self.paired else "by two intervals, since the examples are not the same"
        if not self.seeds_known:
            return f"{examples}; the spread between seeds is assumed"
        return f"{examples}; the spread between seeds is that of {self.trainings} trainings"


def chance_of(p_value: float, *, known: bool, level: float = LEVEL) -> Chance:
    """Return the verdict for a p-value, given whether the spread between seeds is known."""
    return "noise" if p_value >= level else "beyond" if known else "seed"


def sampled_change(nets: npt.NDArray[np.int64], examples: int) -> float:
    """Return the variance, by the examples, of the change of a share of right answers between equal models.

    Agresti and Min: "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine
    2005: half an example is added to each of the four kinds; without seeds it is nearly McNemar's test.

    Args:
        nets: gains minus losses of each example, or of each image with its people, (n,).
        examples: number of examples or people.
    """
    return float(((nets**2).sum() + 1) / (examples + 2) ** 2)


class ShareChange(NamedTuple):
    """The change of a class or a joint between two models.

    Attributes:
        before: the first model's share of right answers, or of labelled joints that are close.
        after: the second model's share.
        sampled: variance of the change by the examples; for a joint by images, since the people of one image are found
            or missed together.
    """

    before: float
    after: float
    sampled: float

    @classmethod
    def of(cls, was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_], nets: npt.NDArray[np.int64]) -> ShareChange:
        """Compute the change of a share.

        Args:
            was: which examples the first model got right, (n,).
            now: which examples the second model got right.
            nets: see :func:`sampled_change`.
        """
        return cls(float(was.mean()), float(now.mean()), sampled_change(nets, len(now)))

    @property
    def change(self) -> float:
        """The rise of the share."""
        return self.after - self.before


def accuracies(right_before: npt.ArrayLike, right_after: npt.ArrayLike, seeds: Seeds) -> Difference:
    """Return the difference of the accuracies of two classifiers on the same examples.

    Args:
        right_before: which examples the first model got right, (n,).
        right_after: which examples the second model got right.
        seeds: the effect of the seed on an accuracy.

    Raises:
        ValueError: the numbers of examples differ.
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
    """Return the difference of two figures with separate intervals, on different examples."""
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
    """Correct the p-values of several tests, so that each can be compared with the common level.

    Holm: "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979: the
    smallest p-value times their number, the next times one less, and so on, never falling. Without a real difference,
    the probability of any p-value below the level is at most the level, for any dependence between the tests.
    """
    raised, reached = {}, 0.0
    for place, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        reached = max(reached, min(1.0, chances[key] * (len(chances) - place)))
        raised[key] = reached
    return {key: raised[key] for key in chances}


def chances(parts: Mapping[str, ShareChange], seeds: Mapping[str, Seeds]) -> dict[str, float]:
    """Return the corrected p-value of each class's or joint's change."""
    return holm({name: seeds[name].interval(part.change, part.sampled)[2] for name, part in parts.items()})
