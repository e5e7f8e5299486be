"""Compares two models of several labels example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podline.data.reader import SplitReader
from podline.evaluation.differences import Difference, ShareChange, difference
from podline.kinds.by_example.pairs import aligned, lost_images
from podline.kinds.labels.document import LabelsEvaluation
from podline.kinds.labels.precision import Estimate
from podline.kinds.labels.records import words_of
from podline.kinds.labels.scores import Scores
from podline.noise import Seeds
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store


@dataclass(frozen=True)
class ScoredPair:
    """Two models' scores, in the order of the second model's split.

    Attributes:
        before: the first model's scores.
        after: the second model's scores.
    """

    before: Scores
    after: Scores

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the difference of mAP on the same examples; see :class:`podline.reporting.pairs.Pair`."""
        then, now = self.before.mean_precision(), self.after.mean_precision()
        changed = sampled_change(then, now)
        found = difference(now.value - then.value, changed, seeds["map"], len(now.influence), paired=True)
        right, was = self.after.right, self.before.right
        return {"map": found.changed(gained=int((right & ~was).sum()), lost=int((was & ~right).sum()))}

    def moved(self, names: Sequence[str]) -> dict[str, ShareChange]:
        """Return the change of each judged label's AP, by name."""
        return {
            names[label]: ShareChange(then.value, now.value, sampled_change(then, now))
            for (label, then), (_, now) in zip(self.before.precisions(), self.after.precisions(), strict=True)
        }


def sampled_change(before: Estimate, after: Estimate) -> float:
    """Return the variance of a figure's change over samples of examples, which both models share."""
    return float(((after.influence - before.influence) ** 2).sum())


def pair(store: Store, before: Judged, after: Judged) -> ScoredPair:
    """Pair two evaluations on the same examples; see :func:`podline.reporting.pairs.paired`."""
    return ScoredPair(*aligned(store, before, after, Scores))


def lost_examples(
    pair: ScoredPair, reader: SplitReader, before: LabelsEvaluation, after: LabelsEvaluation
) -> LostExamples:
    """Return examples for which only the first model got all labels right, largest loss of certainty first."""
    then, now, names = pair.before, pair.after, before.class_names

    def lost(record: int) -> LostExample:
        truth, was, is_now = (words_of(said[record], names) for said in (then.labels, then.named, now.named))
        return LostExample(record=record, name=truth, before=was, after=is_now)

    return lost_images(reader, then.right, now.right, then.losses - now.losses, lost)
