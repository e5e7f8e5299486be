"""Figures of a candidate and of the known trainings of the reference's recipe, and the rules that make them."""

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
"""The least number of test examples of a class or joint in a promotion; below it, only a total loss would show."""

WIDEST = 0.2
"""The widest automatic margin of a main metric with values up to 1, like accuracy and AP.

Below about 200 test examples, a wider margin would promote models that are clearly worse."""

_DRAWS = 200


class ModelCost(NamedTuple):
    """The cost of a model: bytes of its parameters, multiply-adds per example."""

    bytes: int
    operations: int


@dataclass(frozen=True)
class Pair:
    """A candidate and the known trainings of the reference's recipe, evaluated on the same examples.

    Answers come from :meth:`podline.promotion.answers.Answers.judged`: for a classifier
    :class:`podline.kinds.classification.guesses.Guesses`, for a pose network a ``COCOeval``.

    Attributes:
        kind: name of their kind of task.
        known: the answers of the known trainings, the reference's first.
        candidate: the candidate's answers.
        costs: costs of the reference and of the candidate.
        class_names: class names by label.
    """

    kind: str
    known: Sequence[Any]
    candidate: Any
    costs: tuple[ModelCost, ModelCost]
    class_names: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of a candidate and of the known trainings, on the same examples. Higher is better.

    For a measure for which lower is better, all values have their sign changed.

    Attributes:
        name: name of the metric, class or joint.
        measure: the metric that defines the unit; for an unknown one it is a number with three decimals.
        reference: the reference's own figure.
        value: the candidate's figure.
        sampled: variance, by the examples, of ``value`` minus the mean of the known trainings.
        noise: the effect of chance on it.
        margin: the largest loss of a promoted model; ``auto`` for the smallest loss that can be shown.
        rule: name of the rule that made it.
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
        """Return the pessimistic bound of the change."""
        return self.change - float(self.noise.room(self.change, self.sampled, rate))

    def beyond(self, rate: float) -> float:
        """Return the change that equally good models exceed with a probability of ``rate``."""
        return float(self.noise.beyond(self.sampled, rate))

    def allowed(self, figures: int, rate: float) -> float:
        """Return the margin: the given number, or the smallest loss that can be shown, at most :data:`WIDEST`."""
        if self.margin != "auto":
            return self.margin
        main, measure = self.rule == "main", measure_named(self.measure)
        smallest = float(self.noise.margin(missed(figures, main=main), rate))
        return min(smallest, WIDEST) if main and measure.higher_is_better and not measure.in_units else smallest

    def more_trainings(self, figures: int, rate: float) -> int:
        """Return the number of further known trainings that would show it, all else being equal; 0 if none would."""
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
        name: name in ``promotion.json`` and in messages.
        kind: kind of the models that it applies to; empty for all.
        judge: returns figures, which chance may affect, or checks, which it does not, for a pair.
    """

    name: str
    kind: str
    judge: Judge

    def __call__(self, pair: Pair, settings: PromotionSettings) -> Iterator[Figure | Check]:
        """Apply the rule to a pair."""
        for said in self.judge(pair, settings):
            yield replace(said, rule=self.name) if isinstance(said, Figure) else said


def rule(name: str, kind: str = "") -> Callable[[Judge], Rule]:
    """Make a rule from a function; see :class:`Rule`."""
    return functools.partial(Rule, name, kind)


def shares(known: Mapping[str, Floats], now: Mapping[str, Floats], spread: float, margin: Margin) -> Iterator[Figure]:
    """Yield a figure for each share of right answers; each share has its own examples.

    Args:
        known: the right answers of each known training by the name of the share, (trainings, examples).
        now: the right answers of the candidate, (examples,).
        spread: assumed standard deviation between seeds, for a share of one half.
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
    """Return a figure that is a number, such as a loss, instead of a share of examples.

    Args:
        name: name of the figure.
        measure: see :class:`Figure`.
        values: values of the known trainings, the reference first, and then the candidate's.
        variances: variances, by the examples, of the candidate's minus the reference's figure, and of the reference's
            alone.
        spread: assumed standard deviation between seeds.
        margin: see :class:`Figure`.
    """
    *known, value = values
    # The luck of single answers is unknown here, and counts as an effect of the seed, which is estimated.
    luck, more = variances[1] / 2, 1 + 1 / len(known)
    [seeds] = seeds_of(np.array([known]).T, math.inf, luck, spread)
    noise = Noise(fmean(known), math.inf, 0.0, luck + float(seeds), len(known))
    # The mean of several trainings has less luck than a single one.
    sampled = max(0.0, variances[0] * more / 2 - luck * more)
    return Figure(name, measure, known[0], value, sampled, noise, margin)


def drawn(
    name: str, pair: Pair, value: Callable[[Any], float], settings: PromotionSettings, measure: str = ""
) -> Figure:
    """Return a figure that is any function of answers; drawing examples with replacement shows its noise.

    Args:
        name: name of the figure.
        pair: two models with an answer per example.
        value: computes the figure from the answers of one model; higher is better.
        settings: settings with the spread of seeds and the margin.
        measure: the metric that defines the unit, as ``top1`` for a share; by default it is a plain number.
    """
    random, count = np.random.default_rng(0), len(pair.candidate.labels)
    places = [random.integers(count, size=count) for _ in range(_DRAWS)]
    before, after = (np.array([value(each.at(of)) for of in places]) for each in (pair.known[0], pair.candidate))
    values = [value(each) for each in (*pair.known, pair.candidate)]
    variances = float((after - before).var(ddof=1)), float(before.var(ddof=1))
    spread = measure_named(measure or name).spread(settings.spread, values[0])
    return number(name, measure or name, values, variances, spread, settings.margin)
