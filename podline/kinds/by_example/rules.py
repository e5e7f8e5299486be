"""Promotion rules that compare measures of a kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from podline.compare.figures import MAIN, Compared, Figure, drawn, rule
from podline.errors import SettingsError
from podline.kinds.by_example.measures import value_of
from podline.kinds.table import kind_named
from podline.measures import Measure, measure_named, of_kind
from podline.recipes.promotion_settings import PromotionSettings


@rule(MAIN)
def main(compared: Compared, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the main measure is not worse."""
    yield replace(
        measured(compared, measure_named(kind_named(compared.kind).measure), settings), margin=settings.margin
    )


@rule("guard")
def guards(compared: Compared, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the measures named by the settings are not worse."""
    measures = {measure.name: measure for measure in of_kind(compared.kind)}
    for name in settings.guards:
        if name not in measures:
            raise SettingsError(
                f"promotion.guards: got {name}, expected a measure of the kind {compared.kind}: {', '.join(measures)}"
            )
        yield measured(compared, measures[name], settings)


def measured(compared: Compared, measure: Measure, settings: PromotionSettings) -> Figure:
    """Return a measure as a figure of the rules, with an automatic margin."""
    sign = 1 if measure.higher_is_better else -1
    return drawn(measure.label, compared, lambda answers: sign * value_of(measure, answers), settings, measure.name)
