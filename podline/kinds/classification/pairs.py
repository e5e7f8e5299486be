"""Compares two classifiers example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from podline.data.reader import SplitReader
from podline.evaluation import differences
from podline.evaluation.differences import Difference, ShareChange
from podline.kinds.by_example.pairs import aligned, lost_images
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.guesses import Guesses
from podline.noise import Seeds
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store


@dataclass(frozen=True)
class GuessedPair:
    """Two classifiers' answers, in the order of the second classifier's split.

    Attributes:
        before: the first classifier's answers.
        after: the second classifier's answers.
    """

    before: Guesses
    after: Guesses

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the difference of the accuracies on the same examples; see :class:`podline.reporting.pairs.Pair`."""
        return {"top1": differences.accuracies(self.before.right, self.after.right, seeds["top1"])}

    def moved(self, names: Sequence[str]) -> dict[str, ShareChange]:
        """Return the change of each class, by name."""
        return moved_classes(self.before, self.after, names)


def moved_classes(before: Guesses, after: Guesses, class_names: Sequence[str]) -> dict[str, ShareChange]:
    """Return the change of each class with examples, by name."""
    order = np.argsort(after.labels, kind="stable")
    labels, firsts = np.unique(after.labels[order], return_index=True)
    found = {}
    for label, rows in zip(labels.tolist(), np.split(order, firsts[1:]), strict=True):
        was, now = before.right[rows], after.right[rows]
        found[class_names[int(label)]] = ShareChange.of(was, now, now.astype(int) - was)
    return found


def pair(store: Store, before: Judged, after: Judged) -> GuessedPair:
    """Pair two evaluations on the same examples; see :func:`podline.reporting.pairs.paired`."""
    return GuessedPair(*aligned(store, before, after, Guesses))


def lost_examples(pair: GuessedPair, reader: SplitReader, before: Evaluation, after: Evaluation) -> LostExamples:
    """Return examples that only the first classifier got right, most confident first."""
    then, now, names = pair.before, pair.after, before.class_names

    def lost(record: int) -> LostExample:
        was, is_now = (
            f"{names[said.predictions[record]]}, {100 * said.confidences[record]:.0f} %" for said in (then, now)
        )
        return LostExample(record=record, name=names[now.labels[record]], before=was, after=is_now)

    return lost_images(reader, then.right, now.right, -then.confidences, lost)
