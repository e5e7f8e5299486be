"""Paired tests of two models on the same examples.

What both got right, and what both got wrong, says nothing about which is better; the rest does. That is McNemar's test
("Note on the sampling error of the difference between correlated proportions or percentages", Psychometrika 1947), here
with exact binomial tails.

Two trainings that differ in nothing but the seed are not the same model either: each is by itself a little better or
worse, on any examples. :func:`chance_to_lose` takes that as a second source of chance, with a spread of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from podline.documents.metric import Metric
from podline.intervals import Z

Key = TypeVar("Key")

Tails = Literal["normal", "student"]
"""How what a seed does is spread: normally, or, where its size is only guessed, as Student's variable with four degrees
of freedom."""

# Into so many equally likely parts what a seed does to a model is cut.
_PARTS = 400


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


def chance_to_lose(counts: Changed, spread: float = 0.0, tails: Tails = "normal") -> float:
    """How likely it is to lose so many examples net, or more, against an equally good model: one-sided.

    Without a spread: McNemar's exact test. Of m examples that only one of the two got right, each is lost with a
    probability of one half.

    With one: the shares of right answers that two trainings of one recipe have in the long run differ by a variable of
    scale ``sqrt(2) * spread``; a difference of δ moves that half to ``1/2 + n δ / 2 m``. The answer is the mean over δ.

    Args:
        counts: what was lost and gained.
        spread: the standard deviation, between trainings, of the share of right answers that a model has in the long
            run: what an endless test set would show.
        tails: how that is spread.
    """
    disputed = counts.lost + counts.gained
    if disputed == 0 or counts.lost == 0:
        return 1.0
    halves = np.full(1, 0.5)
    if spread:
        differences = math.sqrt(2) * spread * _QUANTILES[tails]
        halves = np.clip(0.5 + counts.examples * differences / (2 * disputed), 0.0, 1.0)
    return float(_at_least(counts.lost, disputed, halves).mean())


def _student_quantile(part: float) -> float:
    """Of Student's variable with four degrees of freedom: Shaw, "Sampling Student's T distribution", 2006."""
    root = math.sqrt(4 * part * (1 - part))
    return math.copysign(2 * math.sqrt(math.cos(math.acos(root) / 3) / root - 1), part - 0.5)


def _quantiles(quantile: Callable[[float], float]) -> npt.NDArray[np.float64]:
    return np.array([quantile((part + 0.5) / _PARTS) for part in range(_PARTS)])


_QUANTILES = {"normal": _quantiles(NormalDist().inv_cdf), "student": _quantiles(_student_quantile)}


def _at_least(successes: int, trials: int, rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The probability of so many successes or more, at each of some rates."""
    numbers = np.arange(successes, trials + 1)
    ways = math.lgamma(trials + 1) - np.array([math.lgamma(k + 1) + math.lgamma(trials - k + 1) for k in numbers])
    inner = np.clip(rates, 1e-300, 1 - 1e-16)[:, None]
    tails = np.exp(ways + numbers * np.log(inner) + (trials - numbers) * np.log1p(-inner)).sum(axis=1)
    return np.where(rates <= 0, 0.0, np.where(rates >= 1, 1.0, np.minimum(tails, 1.0)))


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
