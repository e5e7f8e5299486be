"""Rules of promotion for classifiers: accuracy, classes, calibration error, guarded measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from podline.errors import SettingsError
from podline.evaluation.class_measures import value_of
from podline.evaluation.guesses import Guesses
from podline.measures import Measure, measure_named, of_classifiers
from podline.noise import PART, WHOLE, expected_of_whole
from podline.promotion.figure import LEAST_EXAMPLES, Figure, Floats, Pair, Shares, drawn, rule
from podline.recipes.promotion_settings import PromotionSettings


@rule("main", "classification")
def accuracy(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """The accuracy must not fall."""
    of_class = _by_class(pair, pair.known)
    whole = {"accuracy": _right(pair.known)}
    of_part = Shares(of_class).expected(settings.part_spread) if of_class else 0.0
    expected = expected_of_whole(settings.spread, of_part, len(of_class))
    now = {"accuracy": _right([pair.candidate])[0]}
    shares = Shares(whole)
    yield from shares.figures(now, shares.noise(expected, WHOLE), settings.margin)


@rule("class", "classification")
def classes(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """The accuracy of each class with enough test examples must not fall."""
    now = {name: right[0] for name, right in _by_class(pair, [pair.candidate]).items()}
    if now:
        shares = Shares(_by_class(pair, pair.known))
        noise = shares.noise(shares.expected(settings.part_spread), PART)
        yield from shares.figures(now, noise, settings.part_margin)


@rule("calibration", "classification")
def calibration(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """The calibration error must not grow."""
    yield replace(_measured(pair, measure_named("calibration_error"), settings), margin=settings.calibration)


@rule("guard", "classification")
def guards(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """The measures that the settings name must not be worse."""
    measures = {measure.name: measure for measure in of_classifiers()}
    for name in settings.guards:
        if name not in measures:
            raise SettingsError(f"promotion.guards: got {name}, expected a measure of classes: {', '.join(measures)}")
        yield _measured(pair, measures[name], settings)


def _measured(pair: Pair, measure: Measure, settings: PromotionSettings) -> Figure:
    sign = 1 if measure.higher_is_better else -1
    return drawn(measure.label, pair, lambda said: sign * value_of(measure, said), settings, measure.name)


def _right(said: Sequence[Guesses]) -> Floats:
    return np.stack([guesses.right for guesses in said]).astype(float)


def _by_class(pair: Pair, said: Sequence[Guesses]) -> dict[str, Floats]:
    """Return what models got right of the examples of each class that has enough of them, by name."""
    right = _right(said)
    rows = {name: np.flatnonzero(pair.candidate.labels == label) for label, name in enumerate(pair.class_names)}
    return {name: right[:, places] for name, places in rows.items() if len(places) >= LEAST_EXAMPLES}
