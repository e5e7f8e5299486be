"""Two classifiers on the same examples, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from podline.data.reader import SplitReader
from podline.datasets.census import census_of, same_examples
from podline.errors import ArtifactError, StoreError
from podline.evaluation import differences
from podline.evaluation.differences import Difference, ShareChange
from podline.evaluation.per_example import PerExample
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.guesses import Guesses
from podline.noise import Floats, Seeds
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store

MOST_EXAMPLES = 24
"""So many examples are named and shown."""

Answers = TypeVar("Answers", bound=PerExample)


@dataclass(frozen=True)
class GuessedPair:
    """Two classifiers, in the order of the second's split.

    Attributes:
        before: what the first said.
        after: what the second said.
    """

    before: Guesses
    after: Guesses

    def differences(self, seeds: Mapping[str, Seeds]) -> dict[str, Difference]:
        """Return the difference of the accuracy on the same examples; see :class:`podline.reporting.pairs.Pair`."""
        return {"top1": differences.accuracies(self.before.right, self.after.right, seeds["top1"])}

    def moved(self, names: Sequence[str]) -> dict[str, ShareChange]:
        """How each class moved, by name."""
        return moved_classes(self.before, self.after, names)


def moved_classes(before: Guesses, after: Guesses, class_names: Sequence[str]) -> dict[str, ShareChange]:
    """Every class of which there are examples, by its name."""
    order = np.argsort(after.labels, kind="stable")
    labels, firsts = np.unique(after.labels[order], return_index=True)
    found = {}
    for label, rows in zip(labels.tolist(), np.split(order, firsts[1:]), strict=True):
        was, now = before.right[rows], after.right[rows]
        found[class_names[int(label)]] = ShareChange.of(was, now, now.astype(int) - was)
    return found


def pair(store: Store, before: Judged, after: Judged) -> GuessedPair:
    """Two judgements on the same examples; see :func:`podline.reporting.pairs.paired`."""
    return GuessedPair(*aligned(store, before, after, Guesses))


def aligned(store: Store, before: Judged, after: Judged, answers: type[Answers]) -> tuple[Answers, Answers]:
    """Return what two models say of the same examples, in the order of the second's split.

    Raises:
        StoreError: they are not of the same examples, or what was said of each of them is no longer there.
        ArtifactError: a file is damaged.
    """
    then, now = (answers.read(store, each.folder) for each in (before, after))
    same = before.fingerprint == after.fingerprint
    places = np.arange(len(now.labels)) if same else _places(store, before, after)
    files = " and ".join(store.where(f"{each.folder}/{answers.file}") for each in (after, before))
    if not len(then.labels) == len(now.labels) == len(places):
        raise ArtifactError(
            f"{files} hold {len(now.labels)} and {len(then.labels)} {answers.holds} vs {len(places)} examples; "
            "evaluate the runs again"
        )
    ordered = then.at(places)
    if not np.array_equal(ordered.labels, now.labels):
        raise ArtifactError(f"{files} are not of the same examples; evaluate the runs again")
    return ordered, now


def _places(store: Store, before: Judged, after: Judged) -> npt.NDArray[np.int64]:
    """For each example of the second's split, where the first's has it."""
    there, here = (census_of(store, each.dataset, each.fingerprint)[each.split] for each in (before, after))
    then, now = same_examples(there, here)
    if not len(now) == len(there) == len(here):
        raise StoreError(f"the test sets differ: {len(now)} of {len(there)} and {len(here)} examples are the same")
    return then[np.argsort(now)]


def lost_examples(pair: GuessedPair, reader: SplitReader, before: Evaluation, after: Evaluation) -> LostExamples:
    """Return examples that only the first named rightly, those first of which it was surest."""
    then, now, names = pair.before, pair.after, before.class_names

    def lost(record: int) -> LostExample:
        was, is_now = (
            f"{names[said.predictions[record]]}, {100 * said.confidences[record]:.0f} %" for said in (then, now)
        )
        return LostExample(record=record, name=names[now.labels[record]], before=was, after=is_now)

    return lost_images(reader, then.right, now.right, -then.confidences, lost)


def lost_images(
    reader: SplitReader,
    then: npt.NDArray[np.bool_],
    now: npt.NDArray[np.bool_],
    order: Floats,
    example: Callable[[int], LostExample],
) -> LostExamples:
    """Return examples that only the first of two models got right.

    Args:
        reader: of the split that both were judged on.
        then: which the first got right, (n,).
        now: which the second did.
        order: a number for each example; those with the lowest are shown, (n,).
        example: makes one of a record.
    """
    lost = np.flatnonzero(then & ~now)
    records = lost[np.argsort(order[lost], kind="stable")][:MOST_EXAMPLES]
    images = reader.gather(records, ["image"])["image"] if len(records) else ()
    examples = [example(record) for record in records.tolist()]
    return LostExamples(len(lost), int((now & ~then).sum()), examples, [(image,) for image in images])
