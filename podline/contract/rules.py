"""Promotion rules, and the figures that they compare: of a candidate, and of known trainings.

*Known trainings* are the reference and further trainings of its recipe.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from podline.contract.noise import (
    MOST_TRAININGS,
    Floats,
    Noise,
    Spread,
    assumed_spread,
    luck_of,
    nightly,
    scale,
    seeds_of,
)
from podline.contract.per_example import PerExample
from podline.documents.promotion import Check
from podline.recipes.measures import measure_named
from podline.recipes.promotion_settings import Margin, PromotionSettings

LEAST_EXAMPLES = 50
"""A class or joint with fewer test examples is ignored in a promotion, because only a drop to 0 could be detected."""

WIDEST = 0.2
"""The widest automatic margin of a main metric with values up to 1, such as accuracy and AP.

Below about 200 test examples, a wider margin would promote models that are clearly worse."""

MAIN = "main"
"""The name of the rule that compares the main metric."""
PARTS = ("class", "joint")
"""The names of the rules that compare each class or joint."""
# Shares of equally good models that miss the threshold of the main metric, and the threshold of any other figure.
_MISSED, _OTHERS_MISSED = 0.065, 0.05
_DRAWS = 200


class ModelCost(NamedTuple):
    """The cost of a model: size of its parameters in bytes, multiply-adds per example."""

    bytes: int
    operations: int


F_co = TypeVar("F_co", covariant=True)
E = TypeVar("E", bound=PerExample)


@dataclass(frozen=True)
class Compared(Generic[F_co]):
    """A candidate and the known trainings of the reference's recipe, evaluated on the same examples.

    The type parameter is the type of answers that :meth:`podline.contract.answers.Answers.judged` returns.

    Attributes:
        kind: name of the models' kind of task.
        known: the answers of the known trainings, the reference's first.
        candidate: the candidate's answers.
        class_names: name of class 0, class 1, …
        costs: costs of the reference and of the candidate; None if only answers are compared.
        places: indices of the compared examples in the candidate's split, (n,); None for all.
    """

    kind: str
    known: Sequence[F_co]
    candidate: F_co
    class_names: Sequence[str] = ()
    costs: tuple[ModelCost, ModelCost] | None = None
    places: npt.NDArray[np.int64] | None = None

    def spread(self, settings: PromotionSettings) -> Spread:
        """Return the assumed spread between seeds: from the settings, or as measured for this kind of task."""
        measured = assumed_spread(self.kind, len(self.class_names))
        main, part = settings.spread, settings.part_spread
        return Spread(measured.main if main == "auto" else main, measured.part if part == "auto" else part)


class Thresholds(NamedTuple):
    """Limits for the change of a figure, candidate minus reference; a negative change is worse.

    Attributes:
        promoted: the lowest change that is good enough; usually negative.
        refused: a figure whose change is below this value is significantly worse.
        margin: 0 or more; a recipe that is worse by this value gets promoted within a year with at most the probability
            ``promotion.rate``.
    """

    promoted: Any
    refused: Any
    margin: Any


@dataclass(frozen=True)
class Figure:
    """A metric of a candidate and of the known trainings, on the same examples. Higher is better.

    If lower values of the metric are better, all values have the opposite sign.

    Attributes:
        name: name of the metric, class or joint.
        measure: the metric that defines the unit; values of an unknown metric are shown with three decimals.
        before: mean over the known trainings.
        value: the candidate's value.
        sampled: variance of ``value`` minus ``before`` due to the choice of the examples.
        noise: the random variation of ``value`` minus ``before``.
        margin: how much worse a recipe may be, see :class:`Thresholds`; ``auto`` for the smallest drop that the test
            can detect.
        examples: number of examples if the metric is a share of examples; infinite for other metrics.
        counted: number of examples of a class or joint.
        rule: name of the rule that made the figure.
    """

    name: str
    measure: str
    before: float
    value: Any
    sampled: Any
    noise: Noise
    margin: Margin = "auto"
    examples: float = math.inf
    counted: float = math.inf
    rule: str = ""

    @property
    def change(self) -> Any:
        """The candidate's value minus the mean over the known trainings."""
        return self.value - self.before

    @property
    def counts(self) -> bool:
        """Return whether the figure has enough examples to influence a promotion."""
        return self.rule not in PARTS or self.counted >= LEAST_EXAMPLES

    def thresholds(self, figures: int, rate: float) -> Thresholds:
        """Return the thresholds, given the number of compared figures and the error rate of a year.

        The main metric has half of the error probability of refusals; all other figures together have the other half.
        """
        main, night = self.rule == MAIN, nightly(rate)
        part = 1.0 if figures == 1 else 0.5 if main else 0.5 / (figures - 1)
        refused = self.noise.limit(self.sampled, night * part)
        if self.margin != "auto":
            allowed = self.margin - self._limit(night, self.margin)
            return Thresholds(-allowed, -np.maximum(refused, allowed), self.margin)
        allowed = self.noise.usual(self.sampled, _MISSED if main else _OTHERS_MISSED / max(1, figures - 1))
        margin = allowed
        for _ in range(4):
            margin = allowed + self._limit(night, margin)
        measure = measure_named(self.measure)
        if main and measure.higher_is_better and not measure.in_units:
            allowed, margin = allowed - np.maximum(margin - WIDEST, 0.0), np.minimum(margin, WIDEST)
        return Thresholds(-allowed, -refused, margin)

    def beyond(self, figures: int, rate: float) -> Any:
        """Return the smallest significant change.

        Equal recipes exceed it within a year with at most the probability ``rate``: in the main metric, and in all
        other figures together.
        """
        return self.noise.limit(self.sampled, nightly(rate) * (1.0 if self.rule == MAIN else 1 / figures))

    def more_trainings(self, figures: int, rate: float) -> int:
        """Return how many more trainings with other seeds end "undecided" at the same change; 0 if too many would."""
        known = self.noise.trainings
        for trainings in range(known + 1, MOST_TRAININGS + 1):
            sampled = self.sampled * (1 + 1 / trainings) / (1 + 1 / known)
            found = replace(self, noise=self.noise._replace(trainings=trainings), sampled=sampled)
            at = found.thresholds(figures, rate)
            if not at.refused <= self.change < at.promoted:
                return trainings - known
        return 0

    def _limit(self, probability: float, worse: Any) -> Any:
        """Return the noise, above 0, that a model worse by ``worse`` exceeds with at most ``probability``."""
        factor = scale(self.before - worse, self.examples) / scale(self.before, self.examples)
        return self.noise.scaled(factor).limit(self.sampled + worse / self.examples, probability)


Judge = Callable[[Compared[Any], PromotionSettings], Iterable[Figure | Check]]


@dataclass(frozen=True)
class Rule:
    """A promotion rule.

    Attributes:
        name: name of the rule in ``promotion.json`` and in messages.
        kind: kind of task to which the rule applies; empty for all kinds.
        judge: returns, for compared models, figures to be tested statistically, or checks that are already decided.
    """

    name: str
    kind: str
    judge: Judge

    def __call__(self, compared: Compared[Any], settings: PromotionSettings) -> Iterator[Figure | Check]:
        """Apply the rule; set :attr:`Figure.rule` of each resulting figure to the rule's name."""
        for found in self.judge(compared, settings):
            yield replace(found, rule=self.name) if isinstance(found, Figure) else found


def rule(name: str, kind: str = "") -> Callable[[Judge], Rule]:
    """Return a decorator that makes a :class:`Rule` from a function."""
    return functools.partial(Rule, name, kind)


def shares(known: Mapping[str, Floats], now: Mapping[str, Floats], spread: float, margin: Margin) -> Iterator[Figure]:
    """Yield a figure for each share of right answers, such as the accuracy of each class.

    Args:
        known: name of the share → mask of the right answers of each known training, (trainings, examples); the number
            of examples may differ between shares.
        now: name of the share → mask of the candidate's right answers, (examples,).
        spread: assumed standard deviation between seeds, for a share of one half.
        margin: see :class:`Figure`.
    """
    values = np.array([each.mean(axis=1) for each in known.values()]).T
    trainings, examples = len(values), np.array([float(each.shape[1]) for each in known.values()])
    within = [each.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0 for each in known.values()]
    luck = luck_of(scale(values.mean(axis=0), examples) / 4, examples, np.array(within), trainings)
    seeds = seeds_of(values, examples, luck, spread)
    for place, (name, before) in enumerate(known.items()):
        count = examples[place]
        # Half an example more for each of the four cases (Agresti and Min: "Simple improved confidence intervals for
        # comparing matched proportions", Statistics in Medicine 2005).
        sampled = float((((now[name] - before.mean(axis=0)) ** 2).sum() + 1) / (count + 2) ** 2)
        noise = Noise(float(luck[place]), float(seeds[place]), trainings)
        yield Figure(name, "top1", float(before.mean()), float(now[name].mean()), sampled, noise, margin, count, count)


def number(
    name: str, measure: str, values: Sequence[float], variances: tuple[float, float], spread: float, margin: Margin
) -> Figure:
    """Return a figure for a metric that is not a share of examples, such as a loss.

    Args:
        name: name of the figure.
        measure: see :class:`Figure`.
        values: values of the known trainings, the reference first, and the candidate's value last.
        variances: two variances due to the choice of the examples: of the candidate's minus the reference's value, and
            of the reference's value.
        spread: assumed standard deviation between seeds.
        margin: see :class:`Figure`.
    """
    *known, value = values
    luck, more = float(luck_of(variances[1], 1.0, 0.0, 1)), 1 + 1 / len(known)
    [seeds] = seeds_of(np.array([known]).T, math.inf, luck, spread)
    noise = Noise(luck, float(seeds), len(known))
    # The mean of several trainings has less luck than a single one.
    return Figure(name, measure, fmean(known), value, variances[0] * more / 2, noise, margin)


def drawn(
    name: str, compared: Compared[E], value: Callable[[E], float], settings: PromotionSettings, measure: str = ""
) -> Figure:
    """Return a figure for any function of the answers; the bootstrap over examples estimates its variance.

    Args:
        name: name of the figure.
        compared: models with an answer per example.
        value: computes the figure from the answers of one model, with the opposite sign if lower is better.
        settings: settings with the spread of seeds.
        measure: the metric that defines the unit, such as ``top1`` for a share; ``name`` by default. Values of an
            unknown metric are plain numbers.
    """
    random, count = np.random.default_rng(0), len(compared.candidate.labels)
    places = [random.integers(count, size=count) for _ in range(_DRAWS)]
    before, after = (
        np.array([value(each.at(of)) for of in places]) for each in (compared.known[0], compared.candidate)
    )
    values = [value(each) for each in (*compared.known, compared.candidate)]
    variances = float((after - before).var(ddof=1)), float(before.var(ddof=1))
    spread = measure_named(measure or name).spread(compared.spread(settings).main, values[0])
    return number(name, measure or name, values, variances, spread, "auto")
