"""Promotion rules that compare measures of a kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from podline.base.errors import SettingsError
from podline.contract.noise import Noise, luck_of, seeds_of
from podline.contract.per_example import PerExample
from podline.contract.rules import MAIN, Compared, Figure, drawn, rule, shares
from podline.kinds.by_example.estimate import Estimate
from podline.kinds.by_example.measures import value_of, values_of
from podline.recipes.kind_table import facts_named
from podline.recipes.measures import Measure, measure_named, of_kind
from podline.recipes.promotion_settings import Margin, PromotionSettings


@rule(MAIN)
def main(compared: Compared[PerExample], settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the main measure is not worse."""
    measure = measure_named(facts_named(compared.kind).measure)
    yield replace(measured(compared, measure, settings), margin=settings.margin)


@rule("guard")
def guards(compared: Compared[PerExample], settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the measures in ``promotion.guards`` are not worse.

    Raises:
        SettingsError: the kind has no such measure, or the measure fails.
    """
    measures = {measure.name: measure for measure in of_kind(compared.kind)}
    for name in settings.guards:
        if name not in measures:
            raise SettingsError(
                f"promotion.guards: got {name}, expected a measure of the kind {compared.kind}: {', '.join(measures)}"
            )
        yield measured(compared, measures[name], settings)


def measured(compared: Compared[PerExample], measure: Measure, settings: PromotionSettings) -> Figure:
    """Return a measure as a figure of the promotion rules with an automatic margin.

    The sampling variance is that of a share or an estimate; it comes from the bootstrap for other measures, and if
    lower values are better.
    """
    *known, now = [values_of(measure, each) for each in (*compared.known, compared.candidate)]
    spread = compared.spread(settings).main
    if isinstance(now, Estimate) and measure.higher_is_better:
        estimates = [each for each in known if isinstance(each, Estimate)]
        return estimated(measure.label, measure.name, estimates, now, spread, "auto")
    if not isinstance(now, Estimate) and now.dtype == bool and now.ndim and measure.higher_is_better:
        label, right = measure.label, [np.asarray(each).astype(float) for each in known]
        [figure] = shares({label: np.stack(right)}, {label: now.astype(float)}, spread, "auto")
        return replace(figure, measure=measure.name)
    sign = 1 if measure.higher_is_better else -1
    return drawn(measure.label, compared, lambda answers: sign * value_of(measure, answers), settings, measure.name)


def estimated(
    name: str, measure: str, known: Sequence[Estimate], now: Estimate, spread: float, margin: Margin
) -> Figure:
    """Return a figure as :func:`podline.contract.rules.shares` does, from influences instead of correct answers."""
    values, influences = np.array([[each.value] for each in known]), np.stack([each.influence for each in known])
    trainings, images = influences.shape
    # An image's value is the figure plus the number of images times the image's influence; their mean is the figure.
    within = images**2 * influences.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0
    luck = float(luck_of(images * known[0].variance, images, within, trainings))
    [seeds] = seeds_of(values, math.inf, luck, spread)
    noise = Noise(luck, float(seeds), trainings)
    sampled = float(((now.influence - influences.mean(axis=0)) ** 2).sum())
    return Figure(name, measure, float(values.mean()), now.value, sampled, noise, margin)
