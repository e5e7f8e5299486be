"""Promotion rules for several labels: mAP, the AP of each label, guarded measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from podline.errors import SettingsError
from podline.kinds.labels.precision import Estimate, average_precision
from podline.kinds.labels.scores import Scores
from podline.measures import measure_named
from podline.noise import Noise, luck_within, seeds_of
from podline.promotion.figure import LEAST_EXAMPLES, Figure, Pair, rule
from podline.recipes.promotion_settings import Margin, PromotionSettings

_GUARDED = ("f1_micro", "f1_macro")


@rule("main")
def mean_precision(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the mAP does not fall."""
    yield _figure("mAP", pair, Scores.mean_precision, settings.spread, settings.margin)


@rule("class")
def labels(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the AP of each label with enough test examples does not fall."""
    positives = pair.candidate.labels.sum(axis=0)
    for label in np.flatnonzero(positives >= LEAST_EXAMPLES).tolist():

        def of(scores: Scores, label: int = label) -> Estimate:
            return average_precision(scores.labels[:, label], scores.logits[:, label])

        yield _figure(pair.class_names[label], pair, of, settings.part_spread, settings.part_margin)


@rule("guard")
def guards(pair: Pair, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the measures named by the settings are not worse."""
    for name in settings.guards:
        if name not in _GUARDED:
            raise SettingsError(
                f"promotion.guards: got {name}, expected a measure of several labels: {', '.join(_GUARDED)}"
            )

        def of(scores: Scores, name: str = name) -> Estimate:
            return scores.shares()[name]

        yield _figure(measure_named(name).label, pair, of, settings.spread, settings.margin)


def _figure(name: str, pair: Pair, of: Callable[[Scores], Estimate], spread: float, margin: Margin) -> Figure:
    """Return a figure like :func:`podline.promotion.figure.shares`, from influences instead of correct answers."""
    known, now = [of(each) for each in pair.known], of(pair.candidate)
    values, influences = np.array([[each.value] for each in known]), np.stack([each.influence for each in known])
    trainings, images = influences.shape
    # An image's value is the figure plus its influence times the number of images, so the mean of the values is the
    # figure.
    within = images**2 * influences.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0
    luck = float(luck_within(images * known[0].variance, images, within, trainings))
    [seeds] = seeds_of(values, math.inf, luck, spread)
    noise = Noise(float(values.mean()), math.inf, luck, float(seeds), trainings)
    sampled = float(((now.influence - influences.mean(axis=0)) ** 2).sum())
    return Figure(name, "map", known[0].value, now.value, sampled, noise, margin)
