"""Two classifiers on the same examples, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.data.reader import SplitReader
from podline.datasets.census import census_of, same_examples
from podline.errors import ArtifactError, StoreError
from podline.evaluation import differences
from podline.evaluation.differences import Difference, ShareChange
from podline.kinds.classification.document import Evaluation
from podline.kinds.classification.guesses import GUESSES, Guesses, read_guesses
from podline.noise import Seeds
from podline.reporting.pairs import Judged, LostExample, LostExamples
from podline.store.contract import Store

MOST_EXAMPLES = 24
"""So many examples are named and shown."""


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
    """Every class of which there are examples, by its name.

    Args:
        before: what the first model said.
        after: what the second said of the same examples.
        class_names: by label.
    """
    order = np.argsort(after.labels, kind="stable")
    labels, firsts = np.unique(after.labels[order], return_index=True)
    found = {}
    for label, rows in zip(labels.tolist(), np.split(order, firsts[1:]), strict=True):
        was, now = before.right[rows], after.right[rows]
        found[class_names[int(label)]] = ShareChange.of(was, now, now.astype(int) - was)
    return found


def pair(store: Store, before: Judged, after: Judged) -> GuessedPair:
    """Two judgements on the same examples; see :func:`podline.reporting.pairs.paired`."""
    then, now = (read_guesses(store, each.folder) for each in (before, after))
    same = before.fingerprint == after.fingerprint
    places = np.arange(len(now.labels)) if same else _places(store, before, after)
    if not len(then.labels) == len(now.labels) == len(places):
        raise ArtifactError(
            f"{store.where(f'{after.folder}/{GUESSES}')} and {store.where(f'{before.folder}/{GUESSES}')} hold "
            f"{len(now.labels)} and {len(then.labels)} guesses vs {len(places)} examples; evaluate the runs again"
        )
    ordered = then.at(places)
    if not np.array_equal(ordered.labels, now.labels):
        raise ArtifactError(
            f"{store.where(f'{after.folder}/{GUESSES}')} and {store.where(f'{before.folder}/{GUESSES}')} are not of "
            "the same examples; evaluate the runs again"
        )
    return GuessedPair(ordered, now)


def _places(store: Store, before: Judged, after: Judged) -> npt.NDArray[np.int64]:
    """For each example of the second's split, where the first's has it."""
    there, here = (census_of(store, each.dataset, each.fingerprint)[each.split] for each in (before, after))
    then, now = same_examples(there, here)
    if not len(now) == len(there) == len(here):
        raise StoreError(f"the test sets differ: {len(now)} of {len(there)} and {len(here)} examples are the same")
    return then[np.argsort(now)]


def lost_examples(pair: GuessedPair, reader: SplitReader, before: Evaluation, _after: Evaluation) -> LostExamples:
    """Examples that only the first named rightly, those first of which it was surest.

    Args:
        pair: the two.
        reader: of the split that both were judged on.
        before: the first one's evaluation.
    """
    then, now, names = pair.before, pair.after, before.class_names
    lost = np.flatnonzero(then.right & ~now.right)
    surest = lost[np.argsort(-then.confidences[lost], kind="stable")][:MOST_EXAMPLES]
    return LostExamples(
        len(lost),
        int((now.right & ~then.right).sum()),
        [
            LostExample(
                record=record,
                name=names[now.labels[record]],
                before=f"{names[then.predictions[record]]}, {100 * then.confidences[record]:.0f} %",
                after=f"{names[now.predictions[record]]}, {100 * now.confidences[record]:.0f} %",
            )
            for record in surest.tolist()
        ],
        [(image,) for image in reader.gather(surest, ["image"])["image"]] if len(surest) else [],
    )
