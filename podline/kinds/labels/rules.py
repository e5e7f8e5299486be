"""Promotion rules for several labels: mAP, the AP of each label, guarded measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from podline.compare.figures import MAIN, Compared, Figure, rule
from podline.compare.noise import Noise, luck_of, seeds_of
from podline.errors import SettingsError
from podline.kinds.labels.precision import Estimate, average_precision
from podline.kinds.labels.scores import Scores
from podline.measures import measure_named
from podline.recipes.promotion_settings import Margin, PromotionSettings

_GUARDED = ("f1_micro", "f1_macro")


@rule(MAIN)
def mean_precision(compared: Compared, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the mAP does not fall."""
    yield _figure("mAP", compared, Scores.mean_precision, compared.spread(settings).main, settings.margin)


@rule("class")
def labels(compared: Compared, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the AP of each label does not fall."""
    positives = compared.candidate.labels.sum(axis=0)
    for label in np.flatnonzero(positives).tolist():

        def of(scores: Scores, label: int = label) -> Estimate:
            return average_precision(scores.labels[:, label], scores.logits[:, label])

        found = _figure(compared.class_names[label], compared, of, compared.spread(settings).part, settings.part_margin)
        yield replace(found, counted=float(positives[label]))


@rule("guard")
def guards(compared: Compared, settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the measures named by the settings are not worse."""
    for name in settings.guards:
        if name not in _GUARDED:
            raise SettingsError(
                f"promotion.guards: got {name}, expected a measure of several labels: {', '.join(_GUARDED)}"
            )

        def of(scores: Scores, name: str = name) -> Estimate:
            return scores.shares()[name]

        yield _figure(measure_named(name).label, compared, of, compared.spread(settings).main, "auto")


def _figure(name: str, compared: Compared, of: Callable[[Scores], Estimate], spread: float, margin: Margin) -> Figure:
    """Return a figure like :func:`podline.compare.figures.shares`, from influences instead of correct answers."""
    known, now = [of(each) for each in compared.known], of(compared.candidate)
    values, influences = np.array([[each.value] for each in known]), np.stack([each.influence for each in known])
    trainings, images = influences.shape
    # An image's value is the figure plus its influence times the number of images, so the mean of the values is the
    # figure.
    within = images**2 * influences.var(axis=0, ddof=1).mean() if trainings > 1 else 0.0
    luck = float(luck_of(images * known[0].variance, images, within, trainings))
    [seeds] = seeds_of(values, math.inf, luck, spread)
    noise = Noise(luck, float(seeds), trainings)
    sampled = float(((now.influence - influences.mean(axis=0)) ** 2).sum())
    return Figure(name, "map", float(values.mean()), now.value, sampled, noise, margin)
