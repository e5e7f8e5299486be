"""Promotion rules that compare measures of a kind."""

from __future__ import annotations

from collections.abc import Iterator

from podline.errors import SettingsError
from podline.kinds.by_example.measures import value_of
from podline.kinds.table import kind_named
from podline.measures import Measure, measure_named, of_kind
from podline.promotion.figure import Figure, Pair, drawn, rule
from podline.recipes.promotion_settings import PromotionSettings


@rule("main")
def main(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the main measure is not worse."""
    yield measured(pair, measure_named(kind_named(pair.kind).measure), settings)


@rule("guard")
def guards(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the measures named by the settings are not worse."""
    measures = {measure.name: measure for measure in of_kind(pair.kind)}
    for name in settings.guards:
        if name not in measures:
            raise SettingsError(
                f"promotion.guards: got {name}, expected a measure of the kind {pair.kind}: {', '.join(measures)}"
            )
        yield measured(pair, measures[name], settings)


def measured(pair: Pair, measure: Measure, settings: PromotionSettings) -> Figure:
    """Return a measure as a figure of the rules."""
    sign = 1 if measure.higher_is_better else -1
    return drawn(measure.label, pair, lambda said: sign * value_of(measure, said), settings, measure.name)
