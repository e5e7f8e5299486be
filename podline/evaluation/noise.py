"""Whether a difference between two models is beyond noise, on the same examples or not.

Two models judged on the same examples are wrong on many of the same ones: looking at what only one of them got right
tells far smaller differences from chance than two intervals side by side do. Pure functions; no TensorFlow.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from pycocotools.cocoeval import COCOeval

from podline.documents.metric import Metric
from podline.evaluation.oks_intervals import DRAWS, drawn_figures, figures_of
from podline.evaluation.paired import changed, difference, mcnemar
from podline.frozen import Frozen
from podline.intervals import Z

LEVEL = 0.05
"""A difference that chance gives in fewer than one of twenty comparisons of equal models is not called noise."""

_PERCENTILES = (2.5, 97.5)
Method = Literal["McNemar", "bootstrap", "unpaired"]
METHODS: dict[Method, str] = {
    "McNemar": "McNemar's exact test on the same examples",
    "bootstrap": "bootstrap over the same images, in pairs",
    "unpaired": "two intervals, since the examples are not the same",
}


class Difference(Frozen):
    """After minus before.

    Attributes:
        value: of the figure.
        low: its 95 % interval …
        high: … from low to high.
        p_value: how often chance gives a difference at least so large, between models that are equally good.
        method: how that was found out.
        examples: how many both were judged on; the smaller number where these are not the same.
        gained: examples that only the second got right; None where examples are not right or wrong, or not the same.
        lost: likewise, only the first.
    """

    value: float
    low: float
    high: float
    p_value: float
    method: Method
    examples: int
    gained: int | None = None
    lost: int | None = None

    @property
    def noise(self) -> bool:
        """Whether chance alone could well have given it."""
        return self.p_value >= LEVEL


def accuracies(right_before: npt.ArrayLike, right_after: npt.ArrayLike) -> Difference:
    """Two classifiers on the same examples: the difference of their accuracies; see :mod:`podline.evaluation.paired`.

    Args:
        right_before: of each example, whether the first model got it right, (n,).
        right_after: likewise, the second model.

    Raises:
        ValueError: they are not of the same examples.
    """
    counts = changed(np.asarray(right_before, bool), np.asarray(right_after, bool))
    metric = difference(counts)
    return Difference(
        value=metric.value,
        low=metric.low,
        high=metric.high,
        p_value=mcnemar(counts),
        method="McNemar",
        examples=counts.examples,
        gained=counts.gained,
        lost=counts.lost,
    )


def average_precisions(before: COCOeval, after: COCOeval, draws: int = DRAWS, seed: int = 0) -> dict[str, Difference]:
    """Two pose networks on the same images: by the names of pycocotools' figures, how each of them differs.

    Images are drawn with replacement, the same ones for both; a figure's interval is where the middle 95 % of the
    differences lie, and its p-value twice the share of draws on the rarer side of zero.

    Args:
        before: of the first network, what :func:`podline.evaluation.oks.judged` gave.
        after: likewise, of the second.
        draws: how many times images are drawn.
        seed: of the draws.

    Raises:
        ValueError: they are not of the same images.
    """
    if list(before.params.imgIds) != list(after.params.imgIds):
        raise ValueError("the two networks were not judged on the same images")
    values = figures_of(before), figures_of(after)
    drawn = drawn_figures(before, draws, seed), drawn_figures(after, draws, seed)
    return {
        name: _bootstrapped(
            values[1][name] - values[0][name], drawn[1][name] - drawn[0][name], len(after.params.imgIds)
        )
        for name in values[0]
        if name in values[1]
    }


def unpaired(before: Metric, after: Metric, examples: int) -> Difference:
    """Two figures with intervals of their own, on examples that are not the same.

    The interval is made of both (square and add: Zou and Donner, "Construction of confidence limits about effect
    measures", Statistics in Medicine 2008), the p-value of a normal variable with the deviations of both.

    Args:
        before: the first one.
        after: the second one.
        examples: the smaller number of examples.
    """
    value = after.value - before.value
    low = value - math.hypot(after.value - after.low, before.high - before.value)
    high = value + math.hypot(after.high - after.value, before.value - before.low)
    deviation = math.hypot(after.high - after.low, before.high - before.low) / (2 * Z)
    p_value = math.erfc(abs(value) / deviation / math.sqrt(2)) if deviation else float(value == 0)
    return Difference(value=value, low=low, high=high, p_value=p_value, method="unpaired", examples=examples)


def _bootstrapped(value: float, drawn: npt.NDArray[np.float64], images: int) -> Difference:
    known = drawn[~np.isnan(drawn)]
    low, high = np.percentile(known, _PERCENTILES).tolist() if len(known) else (value, value)
    # One more draw than there were, on either side: no number of draws shows that something never happens.
    rarer = 1 + min((known <= 0).sum(), (known >= 0).sum())
    p_value = min(1.0, 2 * float(rarer) / (1 + len(known)))
    return Difference(value=value, low=low, high=high, p_value=p_value, method="bootstrap", examples=images)
