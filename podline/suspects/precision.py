"""The share of wrong labels among suspects, from canaries: records whose label is swapped before it is scored.

No model trained on a record that it scores, so a swapped label is one that was never trained on. Canaries show how
wrong labels score; the records themselves are a mixture of right and wrong ones. Their density at a score s, the
log-odds of the label, relative to that of canaries is

    π + (1 - π) exp(a + b s)

with π the share of wrong labels. Of a calibrated model b is 1, by Bayes' rule, where wrong labels are drawn evenly from
all classes. The three numbers are those of the greatest likelihood of "record or canary?" (J. Qin, Inferences for
case-control and semiparametric two-sample density ratio models, 1998).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

from podline.data.order import random_below

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_DRAWS = 200  # of the bootstrap
_BINS = 300  # of scores, of equal size: the likelihood is that of counts
_LEAST = 1e-6  # a share of wrong labels


class Mixture(NamedTuple):
    """A fit: see the module."""

    share: float
    a: float
    b: float

    def wrong(self, scores: Floats) -> Floats:
        """Return the probability that a record of each score has a wrong label."""
        right = (1 - self.share) * np.exp(np.minimum(self.a + self.b * scores, 700.0))
        return self.share / (self.share + right)


def swapped(labels: Labels, classes: int, seed: int = 0) -> Labels:
    """Return another class for each record, drawn evenly by a hash of its position."""
    return (labels + 1 + random_below(seed, "canary", 0, np.arange(len(labels)), classes - 1)) % classes


def mixture(records: Floats, canaries: Floats) -> list[Mixture]:
    """Return the fit to the scores of records and canaries, and then those of the draws of a bootstrap."""
    edges = np.unique(np.quantile(np.concatenate([records, canaries]), np.linspace(0, 1, _BINS + 1)[1:-1]))
    places = [np.searchsorted(edges, scores) for scores in (records, canaries)]
    counts = [np.bincount(place, minlength=len(edges) + 1).astype(np.float64) for place in places]
    sums = [np.bincount(place, some, len(edges) + 1) for place, some in zip(places, (records, canaries), strict=True)]
    middle = (sums[0] + sums[1]) / np.maximum(counts[0] + counts[1], 1)
    found = [_fit(middle, *counts, np.array([-4.0, 0.0, 1.0]))]
    start = np.array([np.log(found[0].share / (1 - found[0].share)), found[0].a, found[0].b])
    drawn = np.random.default_rng(0)
    draws = ([drawn.poisson(count) for count in counts] for _ in range(_DRAWS))
    return [*found, *(_fit(middle, *some, start) for some in draws)]


def _fit(scores: Floats, records: Floats, canaries: Floats, start: Floats) -> Mixture:
    ratio = records.sum() / canaries.sum()

    def loss(values: Floats) -> tuple[float, Floats]:
        share, grow = expit(values[0]), np.exp(np.clip(values[1] + values[2] * scores, -60, 60))
        density = share + (1 - share) * grow
        odds = ratio * density
        lost = -(records * np.log(odds) - (records + canaries) * np.log1p(odds)).sum()
        slope = records / density - (records + canaries) * ratio / (1 + odds)
        by_grow = slope * (1 - share) * grow
        return lost, -np.array(
            [(slope * (1 - grow)).sum() * share * (1 - share), by_grow.sum(), (by_grow * scores).sum()]
        )

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-14, 2), (-20, 20), (0.02, 5)]).x
    return Mixture(float(max(expit(found[0]), _LEAST)), float(found[1]), float(found[2]))
