"""Promotion rules for classifiers: accuracy, classes, calibration error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from podline.kinds.by_example.rules import measured
from podline.kinds.classification.guesses import Guesses
from podline.measures import measure_named
from podline.noise import Floats, scale
from podline.promotion.figure import LEAST_EXAMPLES, Figure, Pair, rule, shares
from podline.recipes.promotion_settings import PromotionSettings

# Classes do not vary independently, so the total accuracy varies more than the mean of independent classes would.
_DEPENDENT = 1.5


@rule("main")
def accuracy(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the accuracy does not fall."""
    now = {"accuracy": _right([pair.candidate])[0]}
    parts = [each.noise for each in _of_classes(pair, settings)]
    of_part = [each.seeds / float(scale(each.share, each.examples)) for each in parts] or [0.0]
    # Changes of single classes also change the total accuracy, and more so if classes are not independent.
    spread = math.sqrt(settings.spread**2 + _DEPENDENT * fmean(of_part) / len(of_part))
    yield from shares({"accuracy": _right(pair.known)}, now, spread, settings.margin)


@rule("class")
def classes(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the accuracy of each class with enough test examples does not fall."""
    yield from _of_classes(pair, settings)


@rule("calibration")
def calibration(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the calibration error does not grow."""
    yield replace(measured(pair, measure_named("calibration_error"), settings), margin=settings.calibration)


def _of_classes(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    now = {name: right[0] for name, right in _by_class(pair, [pair.candidate]).items()}
    if now:
        yield from shares(_by_class(pair, pair.known), now, settings.part_spread, settings.part_margin)


def _right(said: Sequence[Guesses]) -> Floats:
    return np.stack([guesses.right for guesses in said]).astype(float)


def _by_class(pair: Pair, said: Sequence[Guesses]) -> dict[str, Floats]:
    """Return the models' correct answers for each class with enough examples, by name."""
    right = _right(said)
    rows = {name: np.flatnonzero(pair.candidate.labels == label) for label, name in enumerate(pair.class_names)}
    return {name: right[:, places] for name, places in rows.items() if len(places) >= LEAST_EXAMPLES}
