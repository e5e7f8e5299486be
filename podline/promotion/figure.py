"""Figures of a candidate beside the known trainings of the reference's recipe, and the rules that make them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from podline.documents.promotion import Check
from podline.measures import measure_named
from podline.noise import MOST_TRAININGS, Floats, Noise, luck_of, missed, seeds_of
from podline.recipes.promotion_settings import Margin, PromotionSettings

LEAST_EXAMPLES = 50
"""A class or joint with fewer test examples is no figure of a promotion: only its loss could be seen."""

WIDEST = 0.2
"""The widest automatic margin of the metric that counts, if it is at most 1, as accuracy and AP are.

Of fewer than about 200 test examples a wider one would promote models that are clearly worse."""

_DRAWS = 200


class ModelCost(NamedTuple):
    """The counted costs of a model: bytes of its parameters, multiply-adds for one example."""

    bytes: int
    operations: int


@dataclass(frozen=True)
class Pair:
    """A candidate and the known trainings of the reference's recipe, judged on the same examples.

    Answers are what :meth:`podline.promotion.answers.Answers.judged` gives: of a classifier
    :class:`podline.kinds.classification.guesses.Guesses`, of a pose network a ``COCOeval``.

    Attributes:
        kind: the name of their kind of task.
        known: the answers of the known trainings, the reference's first.
        candidate: the candidate's answers.
        costs: of the reference and of the candidate.
        class_names: by label.
    """

    kind: str
    known: Sequence[Any]
    candidate: Any
    costs: tuple[ModelCost, ModelCost]
    class_names: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of a candidate and of the known trainings, on the same examples. More is better.

    A measure of which less is better has its sign changed, in all values.

    Attributes:
        name: of the metric, the class or the joint.
        measure: the metric whose unit it has; of an unknown one it is a number with three decimals.
        reference: the reference's own figure.
        value: the candidate's.
        sampled: the variance of ``value`` minus the mean of the known trainings, by the examples.
        noise: what chance does to it.
        margin: by how much a promoted model may be worse; ``auto`` for the smallest that can be shown.
        rule: the name of the rule that made it.
    """

    name: str
    measure: str
    reference: float
    value: float
    sampled: float
    noise: Noise
    margin: Margin = "auto"
    rule: str = ""

    @property
    def change(self) -> float:
        """The candidate's figure minus the mean of the known trainings."""
        return self.value - float(self.noise.share)

    def low(self, rate: float) -> float:
        """Return the pessimistic end of the change."""
        return self.change - float(self.noise.room(self.change, self.sampled, rate))

    def beyond(self, rate: float) -> float:
        """Return the change that equally good models exceed with a probability of ``rate``."""
        return float(self.noise.beyond(self.sampled, rate))

    def allowed(self, figures: int, rate: float) -> float:
        """Return the margin: the number that is set, or the smallest that can be shown, but at most :data:`WIDEST`."""
        if self.margin != "auto":
            return self.margin
        main, measure = self.rule == "main", measure_named(self.measure)
        smallest = float(self.noise.margin(missed(figures, main=main), rate))
        return min(smallest, WIDEST) if main and measure.higher_is_better and not measure.in_units else smallest

    def more_trainings(self, figures: int, rate: float) -> int:
        """Return how many more known trainings would show it, if all else stayed; 0 if none would."""
        known = self.noise.trainings
        for trainings in range(known + 1, MOST_TRAININGS + 1):
            noise = replace(self.noise, trainings=trainings)
            shown = replace(self, noise=noise, sampled=self.sampled * (1 + 1 / trainings) / (1 + 1 / known))
            if shown.low(rate) >= -shown.allowed(figures, rate):
                return trainings - known
        return 0


Judge = Callable[[Pair, PromotionSettings], Iterable[Figure | Check]]


@dataclass(frozen=True)
class Rule:
    """A rule of promotion.

    Attributes:
        name: stands in ``promotion.json`` and in messages.
        kind: of the models that it judges; empty for all.
        judge: what it says of a pair: figures, which chance may change, or checks, which it cannot.
    """

    name: str
    kind: str
    judge: Judge

    def __call__(self, pair: Pair, settings: PromotionSettings) -> Iterator[Figure | Check]:
        """Judge a pair."""
        for said in self.judge(pair, settings):
            yield replace(said, rule=self.name) if isinstance(said, Figure) else said


def rule(name: str, kind: str = "") -> Callable[[Judge], Rule]:
    """Make a function a rule; see :class:`Rule`."""
    return functools.partial(Rule, name, kind)


def shares(known: Mapping[str, Floats], now: Mapping[str, Floats], spread: float, margin: Margin) -> Iterator[Figure]:
    """Yield a figure for each share of right answers, each among examples of its own.

    Args:
        known: what each known training got right of each example, by the name of the share, (trainings, examples).
        now: what the candidate got right of them, (examples,).
        spread: the standard deviation between seeds that is assumed, for a share of one half.
        margin: see :class:`Figure`.
    """
    values = np.array([each.mean(axis=1) for each in known.values()]).T
    trainings, examples = len(values), np.array([float(each.shape[1]) for each in known.values()])
    within = [each.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0 for each in known.values()]
    luck = luck_of(values.mean(axis=0), examples, np.array(within), trainings)
    seeds = seeds_of(values, examples, luck, spread)
    for place, (name, before) in enumerate(known.items()):
        noise = Noise(float(before.mean()), examples[place], float(luck[place]), float(seeds[place]), trainings)
        sampled = float((now[name] - before.mean(axis=0)).var() / examples[place])
        yield Figure(name, "top1", float(before[0].mean()), float(now[name].mean()), sampled, noise, margin)


def number(
    name: str, measure: str, values: Sequence[float], variances: tuple[float, float], spread: float, margin: Margin
) -> Figure:
    """Return a figure that is a number, such as a loss, and not a share of examples.

    Args:
        name: in words.
        measure: see :class:`Figure`.
        values: of the known trainings, the reference first, and then the candidate's.
        variances: by the examples, of the candidate's minus the reference's figure; and of the reference's alone.
        spread: the standard deviation between seeds that is assumed.
        margin: see :class:`Figure`.
    """
    *known, value = values
    # The luck of single answers is a guess here: it counts as what the seed does, which is estimated.
    luck, more = variances[1] / 2, 1 + 1 / len(known)
    [seeds] = seeds_of(np.array([known]).T, math.inf, luck, spread)
    noise = Noise(fmean(known), math.inf, 0.0, luck + float(seeds), len(known))
    # The mean of several trainings has less luck than the reference alone.
    sampled = max(0.0, variances[0] * more / 2 - luck * more)
    return Figure(name, measure, known[0], value, sampled, noise, margin)


def drawn(
    name: str, pair: Pair, value: Callable[[Any], float], settings: PromotionSettings, measure: str = ""
) -> Figure:
    """Return any figure of answers to examples; what chance does to it is found by drawing examples with replacement.

    Args:
        name: in words.
        pair: two models whose answers have an entry for each example.
        value: computes it from the answers of one; more is better.
        settings: for the spread of seeds and the margin.
        measure: the metric whose unit it has, as ``top1`` for a share; by default it is a plain number.
    """
    random, count = np.random.default_rng(0), len(pair.candidate.labels)
    places = [random.integers(count, size=count) for _ in range(_DRAWS)]
    before, after = (np.array([value(each.at(of)) for of in places]) for each in (pair.known[0], pair.candidate))
    values = [value(each) for each in (*pair.known, pair.candidate)]
    variances = float((after - before).var(ddof=1)), float(before.var(ddof=1))
    spread = measure_named(measure or name).spread(settings.spread, values[0])
    return number(name, measure or name, values, variances, spread, settings.margin)
