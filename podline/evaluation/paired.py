"""Paired tests of two models on the same examples.

What both got right, and what both got wrong, says nothing about which is better; the rest does. That is McNemar's test
("Note on the sampling error of the difference between correlated proportions or percentages", Psychometrika 1947), here
with exact binomial tails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc

from podline.documents.metric import Metric
from podline.intervals import Z

Key = TypeVar("Key")


class Changed(NamedTuple):
    """Examples that two models were judged on.

    Attributes:
        lost: those that the first got right and the second gets wrong.
        gained: those that the first got wrong and the second gets right.
        examples: all of them.
    """

    lost: int
    gained: int
    examples: int

    @property
    def drop(self) -> float:
        """By how much the share of right answers falls; negative if it rises."""
        return (self.lost - self.gained) / self.examples if self.examples else 0.0


def changed(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> Changed:
    """Which of the same examples, (n,), each model got right, counted."""
    if before.shape != after.shape:
        raise ValueError(f"{before.shape} vs {after.shape} examples are not the same")
    return Changed(int((before & ~after).sum()), int((~before & after).sum()), len(before))


def mcnemar(counts: Changed) -> float:
    """How likely a difference of this size, either way, is between equally good models: the exact two-sided test."""
    more = max(counts.lost, counts.gained)
    return min(1.0, 2 * chance_to_lose(Changed(more, counts.lost + counts.gained - more, counts.examples)))


def chance_to_lose(counts: Changed) -> float:
    """Return how likely it is to lose so many examples net, or more, against an equally good model: one-sided.

    Of m examples that only one of the two got right, each is lost with a probability of one half.
    """
    return float(bdtrc(counts.lost - 1, counts.lost + counts.gained, 0.5))


def difference(counts: Changed) -> Metric:
    """By how much the second model's share of right answers is higher, with a 95 % interval.

    Agresti and Min: "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine
    2005: the normal interval with one half of an example added to each of the four kinds.
    """
    value = -counts.drop
    total, lost, gained = counts.examples + 2, counts.lost + 0.5, counts.gained + 0.5
    centre = (gained - lost) / total
    half = Z * math.sqrt(lost + gained - (gained - lost) ** 2 / total) / total
    return Metric(value=value, low=max(-1.0, centre - half), high=min(1.0, centre + half))


def holm(chances: Mapping[Key, float]) -> dict[Key, float]:
    """Chances of several tests, raised so that each can be held against the rate that is meant for all together.

    Holm: "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979: the
    smallest times how many there are, the next times one less, and so on, never falling. If nothing is wrong, one of
    them lies below a rate with no more than that probability, whatever they have to do with each other.
    """
    raised, reached = {}, 0.0
    for place, key in enumerate(sorted(chances, key=lambda each: chances[each])):
        reached = max(reached, min(1.0, chances[key] * (len(chances) - place)))
        raised[key] = reached
    return {key: raised[key] for key in chances}
