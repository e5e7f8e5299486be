"""Figures with the influence of every image, from which their uncertainty follows. Pure functions.

A figure's *influence* of an image is the derivative of the figure by the image's weight at weight 1. The squared
influences sum to the figure's variance (Efron: "The Jackknife, the Bootstrap and Other Resampling Plans", 1982, chapter
6: the infinitesimal jackknife, the limit of the bootstrap over many images).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from podline.base.arrays import Floats
from podline.documents.intervals import Z, wilson_interval
from podline.documents.metric import Metric


class Estimate(NamedTuple):
    """An estimated share, such as an AP or F1, with the influence of every image.

    Attributes:
        value: 0…1.
        influence: influence of each image, (n,); the sum is 0.
        positives: number of positive labels behind the estimate.
    """

    value: float
    influence: Floats
    positives: int

    @property
    def variance(self) -> float:
        """The variance of the value over samples of images."""
        return float((self.influence**2).sum())

    def metric(self) -> Metric:
        """Return the value with its 95 % interval, symmetric in log-odds; without variance, Wilson's interval."""
        value = self.value
        room = value * (1 - value)
        if room <= 0 or self.variance <= 0:
            return wilson_interval(round(value * self.positives), self.positives).model_copy(update={"value": value})
        odds, half = math.log(value / (1 - value)), Z * math.sqrt(self.variance) / room
        return Metric(value=value, low=_share(odds - half), high=_share(odds + half))


def _share(odds: float) -> float:
    return 0.5 * (1 + math.tanh(odds / 2))


def mean_of(estimates: Sequence[Estimate], images: int) -> Estimate:
    """Return the mean of several estimates from the same images; without estimates, 0 with the widest interval."""
    influence = np.sum([np.zeros(images), *(each.influence for each in estimates)], axis=0) / max(1, len(estimates))
    value = math.fsum(each.value for each in estimates) / max(1, len(estimates))
    return Estimate(value, influence, sum(each.positives for each in estimates))
