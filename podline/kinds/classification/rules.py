"""Promotion rules for classifiers: the accuracy of each class, and the calibration error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from podline.base.arrays import Floats
from podline.contract.rules import Compared, Figure, rule, shares
from podline.kinds.by_example.rules import measured
from podline.kinds.classification.guesses import Guesses
from podline.recipes.measures import measure_named
from podline.recipes.promotion_settings import PromotionSettings


@rule("class")
def classes(compared: Compared[Guesses], settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the accuracy of each class does not fall."""
    labels = compared.candidate.labels
    rows = {name: np.flatnonzero(labels == label) for label, name in enumerate(compared.class_names)}
    rows = {name: places for name, places in rows.items() if len(places)}
    known, (now,) = _right(compared.known), _right([compared.candidate])
    if rows:
        known, now = ({name: right[..., places] for name, places in rows.items()} for right in (known, now))
        yield from shares(known, now, compared.spread(settings).part, settings.part_margin)


@rule("calibration")
def calibration(compared: Compared[Guesses], settings: PromotionSettings) -> Iterator[Figure]:
    """Warn of a calibration error that grows."""
    yield replace(measured(compared, measure_named("calibration_error"), settings), margin=settings.calibration)


def _right(answers: Sequence[Guesses]) -> Floats:
    return np.stack([guesses.right for guesses in answers]).astype(float)
