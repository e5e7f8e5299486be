"""A model's scores for each label of every example, from which figures and comparisons are computed.

The figures do not depend on the division into batches, to the last bit, since they are computed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Array, Floats
from podline.contract.per_example import PerExample
from podline.documents.intervals import mean_interval
from podline.documents.metric import Metric
from podline.kinds.by_example.estimate import Estimate, mean_of
from podline.kinds.labels.precision import average_precision, best_threshold, f1

LEAST_POSITIVES = 5
"""A label with fewer examples uses the best common threshold of all labels instead of its own."""
_DEALS, _DEALT_ANSWERS, _LEAST_DEALS = 200, 2e8, 20


@dataclass(frozen=True)
class Scores(PerExample):
    """The scores for every label of every example, each array of shape (n, labels).

    Attributes:
        labels: whether the example has the label, bool.
        logits: the predicted log-odds, float32.
        named: whether the model predicts the label, since the probability reaches the threshold, bool.
    """

    file, holds, decides = "scores.npz", "scores", "named"
    has_thresholds = True

    labels: npt.NDArray[np.bool_]
    logits: npt.NDArray[np.float32]
    named: npt.NDArray[np.bool_]

    @classmethod
    def of_logits(cls, logits: npt.NDArray[np.float32], labels: Array, thresholds: Floats) -> Scores:
        """Compute the scores of logits (n, labels) and labels (n, labels), by probability thresholds (labels,)."""
        return cls(labels.astype(bool), logits, probabilities(logits) >= thresholds)

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        """Return for each example whether the model predicts exactly the right labels, (n,)."""
        return (self.labels == self.named).all(axis=1)

    @property
    def judged(self) -> npt.NDArray[np.int64]:
        """The indices of the labels with examples, (k,); other labels have no AP."""
        return np.flatnonzero(self.labels.any(axis=0))

    @property
    def losses(self) -> Floats:
        """Return each example's sum of cross-entropies over its labels, in nats, (n,)."""
        return _surprise(self.logits, self.labels).sum(axis=1)

    def precisions(self) -> Iterator[tuple[int, Estimate]]:
        """Yield the index of each judged label with its AP."""
        for label in self.judged.tolist():
            yield label, average_precision(self.labels[:, label], self.logits[:, label])

    def mean_precision(self) -> Estimate:
        """Return mAP, the mean of the APs of the judged labels; 0 if no example has a label."""
        return mean_of([found for _, found in self.precisions()], len(self.labels))

    def f1(self, label: int) -> Estimate:
        """Return F1 of a judged label."""
        return f1(self.labels[:, label], self.named[:, label])

    def f1_micro(self) -> Estimate:
        """Return F1 over the predictions of all labels together."""
        return f1(self.labels, self.named)

    def f1_macro(self) -> Estimate:
        """Return the mean of the judged labels' F1; 0 if no example has a label."""
        return mean_of([self.f1(label) for label in self.judged.tolist()], len(self.labels))

    def thresholds(self) -> Floats:
        """Return the probability with the highest F1 for each label, (labels,); labels with few examples share one."""
        shares = probabilities(self.logits)
        shared = best_threshold(self.labels.ravel(), shares.ravel()) if self.labels.any() else 0.5
        own = enough(self.labels)
        chosen = [best_threshold(self.labels[:, at], shares[:, at]) if own[at] else shared for at in range(len(own))]
        return np.array(chosen)

    def at_thresholds(self, thresholds: Floats) -> Scores:
        """Return the same scores, with labels predicted by these probability thresholds, (labels,)."""
        return Scores.of_logits(self.logits, self.labels, thresholds)

    def surest_mistakes(self) -> npt.NDArray[np.int64]:
        """Return the indices of the examples with mistakes, most confident first, (m,)."""
        return self.surest_wrong_labels()[:, 0]

    def surest_wrong_labels(self) -> npt.NDArray[np.int64]:
        """Return (example, label) of each example's most confident mistake, most confident first, (m, 2).

        The most confident mistake is the wrongly answered label whose truth has the lowest predicted probability.
        """
        wrong = np.where(self.labels == self.named, 0.0, _surprise(self.logits, self.labels))
        examples = np.flatnonzero(~self.right)
        labels = wrong[examples].argmax(axis=1)
        worst = np.argsort(-wrong[examples, labels], kind="stable")
        return np.stack([examples[worst], labels[worst]], axis=1)

    def guessing(self) -> Metric:
        """Return the mAP of these logits when assigned to the images at random, and the range of 95 % of assignments.

        It is near the mean share of images that have a label; with few images it is higher.
        """
        random, count = np.random.default_rng(0), len(self.labels)
        deals = int(np.clip(_DEALT_ANSWERS / self.logits.size, _LEAST_DEALS, _DEALS))
        dealt = [Scores(self.labels[random.permutation(count)], self.logits, self.named) for _ in range(deals)]
        found = mean_interval([each.mean_precision().value for each in dealt])
        half = (found.high - found.value) * deals**0.5
        return Metric(value=found.value, low=max(0.0, found.value - half), high=min(1.0, found.value + half))


def enough(labels: Array) -> npt.NDArray[np.bool_]:
    """Return which labels have enough examples to choose their own threshold, bool (labels,)."""
    return labels.sum(axis=0) >= LEAST_POSITIVES


def probabilities(logits: npt.NDArray[np.float32]) -> Floats:
    """Convert log-odds to probabilities, float64."""
    return 0.5 * (1 + np.tanh(logits.astype(np.float64) / 2))


def _surprise(logits: npt.NDArray[np.float32], labels: npt.NDArray[np.bool_]) -> Floats:
    """Return the cross-entropy of each answer in nats, (n, labels)."""
    return np.logaddexp(0.0, np.where(labels, -1.0, 1.0) * logits)
