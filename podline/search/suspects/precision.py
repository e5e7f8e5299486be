"""Estimates the share of wrong labels among suspects by canaries: records whose label is swapped before scoring.

A model scores only records that it was not trained on. The score s of a record is the log-odds of its label. Canaries
show the scores of wrong labels; the real records are a mixture of right and wrong ones. The density of the records'
scores, divided by that of the canaries' scores, is

    π + (1 - π) exp(a + b s + c s²),  c ≤ 0.

π is the share of wrong labels. For a calibrated model b is 1 and c is 0, by Bayes' rule, if wrong labels are drawn
uniformly from the other classes. The parameters maximise the likelihood of "record or canary?" (J. Qin,
Inferences for case-control and semiparametric two-sample density ratio models, Biometrika 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cleanlab.rank import get_label_quality_scores
from scipy.optimize import minimize
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from podline.base.arrays import Floats
from podline.data.order import random_below
from podline.documents.intervals import ENDS
from podline.documents.metric import Metric

Labels = npt.NDArray[np.int64]

_DRAWS = 100  # draws of the bootstrap
_BINS = 300  # bins of scores, of equal size: the likelihood uses counts
_MIDDLE, _SCALE = -2.0, 3.0  # centre and scale of log-odds: powers of values near 1 are well conditioned
_LEAST = 1.0  # wrong labels: below this number, none are expected


class AssessedLabels(NamedTuple):
    """The assessed labels of a split.

    Attributes:
        suspects: positions of the suspected records, most doubtful first; may be empty.
        wrong: the probability that each label is wrong, (n,).
        expected: estimated number of wrong labels in the split.
        precision: share of wrong labels among the suspects; None without suspects.
    """

    suspects: Labels
    wrong: Floats
    expected: Metric
    precision: Metric | None


def judged(labels: Labels, probabilities: Floats, precision: float) -> AssessedLabels:
    """Assess labels by models that were not trained on them.

    Args:
        labels: the label of each record, int64 (n,).
        probabilities: predicted probability of each class, (n, classes).
        precision: least expected share of wrong labels among the suspects; as many records as it allows are suspects.
    """
    scores, canaries = (_scores(some, probabilities) for some in (labels, swapped(labels, probabilities.shape[1])))
    with threadpool_limits(1):  # fits are small: more threads make them ten times slower
        best, draws = mixtures(scores, canaries)
    wrong = np.mean([fit.wrong(scores) for fit in best], axis=0)
    order, drawn = np.argsort(scores, kind="stable"), np.random.default_rng(0)
    share = float(np.mean([fit.share for fit in best]))
    expected = _interval(share * len(labels), [draw.share * len(labels) for draw in draws])
    enough = np.flatnonzero(np.cumsum(wrong[order]) >= precision * np.arange(1, len(order) + 1))
    suspects = order[: enough[-1] + 1 if len(enough) else 0]
    if not len(suspects):
        return AssessedLabels(suspects, wrong, expected, None)
    # The interval includes the uncertainty of the fit, and the sampling noise of the suspects.
    shares = [
        drawn.binomial(len(suspects), min(1.0, draw.wrong(scores[suspects]).mean())) / len(suspects) for draw in draws
    ]
    found = _interval(wrong[suspects].mean(), shares)
    if found.low * len(suspects) < _LEAST:
        return AssessedLabels(suspects[:0], wrong, expected, None)
    return AssessedLabels(suspects, wrong, expected, found)


def _scores(labels: Labels, probabilities: Floats) -> Floats:
    """Return the log-odds of each record's label, float64 (n,), from cleanlab's score of label quality."""
    quality = get_label_quality_scores(labels, probabilities, method="self_confidence", adjust_pred_probs=False)
    return logit(np.clip(quality, 1e-9, 1 - 1e-9))


def _interval(value: float, draws: Sequence[float]) -> Metric:
    low, high = np.quantile(draws, ENDS)
    return Metric(value=value, low=min(float(low), value), high=max(float(high), value))


class Mixture(NamedTuple):
    """Fitted parameters of the mixture in the module's docstring.

    Attributes:
        share: share of wrong labels.
        terms: coefficients of the polynomial in (score - ``_MIDDLE``) / ``_SCALE``, the constant one first.
    """

    share: float
    terms: Floats

    def wrong(self, scores: Floats) -> Floats:
        """Return the probability of a wrong label for each score."""
        right = (1 - self.share) * np.exp(np.minimum(_powers(scores) @ self.terms, 700.0))
        return self.share / (self.share + right)


def swapped(labels: Labels, classes: int) -> Labels:
    """Return a wrong label for each record, int64 (n,): another class, drawn uniformly by a hash of the position."""
    return (labels + 1 + random_below(0, "canary", 0, np.arange(len(labels)), classes - 1)) % classes


def mixtures(records: Floats, canaries: Floats) -> tuple[list[Mixture], list[Mixture]]:
    """Fit the mixture to the scores of records and canaries, once with c = 0 and once with any c.

    Returns:
        Both fits; and the fits to draws of a bootstrap, half of them with c = 0. With few wrong labels the data do not
        show which form is right.
    """
    both = np.concatenate([records, canaries])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, _BINS + 1)[1:-1]))
    places = [np.searchsorted(edges, scores) for scores in (records, canaries)]
    counts = [np.bincount(place, minlength=len(edges) + 1).astype(np.float64) for place in places]
    sums = np.bincount(np.concatenate(places), both, len(edges) + 1)
    powers = _powers(sums / np.maximum(counts[0] + counts[1], 1))
    drawn, best, draws = np.random.default_rng(0), list[Mixture](), list[Mixture]()
    for least in (0.0, None):
        fit, start = _fit(powers, counts, np.array([-4.0, 0.0, 3.0, 0.0]), least)
        best.append(fit)
        some = ([drawn.poisson(count).astype(np.float64) for count in counts] for _ in range(_DRAWS // 2))
        draws += [_fit(powers, each, start, least)[0] for each in some]
    return best, draws


def _powers(scores: Floats) -> Floats:
    return np.vander((scores - _MIDDLE) / _SCALE, 3, increasing=True)


def _fit(powers: Floats, counts: Sequence[Floats], start: Floats, least: float | None) -> tuple[Mixture, Floats]:
    records, canaries = counts
    ratio = records.sum() / canaries.sum()

    def loss(values: Floats) -> tuple[float, Floats]:
        share, exponent = expit(values[0]), powers @ values[1:]
        right = np.exp(np.clip(exponent, -60, 60))
        density = share + (1 - share) * right
        odds = ratio * density
        lost = -(records * np.log(odds) - (records + canaries) * np.log1p(odds)).sum()
        slope = records / density - (records + canaries) * ratio / (1 + odds)
        by_share = (slope * (1 - right)).sum() * share * (1 - share)
        return lost, -np.array([by_share, *((slope * (1 - share) * right) @ powers)])

    bounds = [(-14.0, 2.0), (None, None), (0.0, None), (least, 0.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Mixture(float(expit(found[0])), found[1:]), found
