"""Promotion rule for several labels: the AP of each label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from podline.contract.rules import Compared, Figure, rule
from podline.kinds.by_example.estimate import Estimate
from podline.kinds.by_example.rules import estimated
from podline.kinds.labels.precision import average_precision
from podline.kinds.labels.scores import Scores
from podline.recipes.promotion_settings import PromotionSettings


@rule("class")
def labels(compared: Compared[Scores], settings: PromotionSettings) -> Iterator[Figure]:
    """Require that the AP of each label does not fall."""
    positives = compared.candidate.labels.sum(axis=0)
    for label in np.flatnonzero(positives).tolist():

        def of(scores: Scores, label: int = label) -> Estimate:
            return average_precision(scores.labels[:, label], scores.logits[:, label])

        known, now = [of(each) for each in compared.known], of(compared.candidate)
        spread, margin = compared.spread(settings).part, settings.part_margin
        found = estimated(compared.class_names[label], "map", known, now, spread, margin)
        yield replace(found, counted=float(positives[label]))
