"""Selects the test examples on which candidate and reference are compared if their data sets differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import PodlineError
from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.data.record_table import NOTHING, Records
from podline.data.versions.version_changes import known_records, same_examples
from podline.documents.manifest import TRAINING, VALIDATION, split_in_words
from podline.documents.promotion import Check
from podline.ledger.inventory.catalogue import training_of
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

Places = npt.NDArray[np.int64]
Keys = npt.NDArray[np.bytes_]

# Number of leaked examples that a message lists.
_NAMED = 3
# If at least this share of the candidate's unseen test examples is shared, only the shared examples are compared.
_ENOUGH = 0.5


@dataclass(frozen=True)
class SharedExamples:
    """The test examples that two data sets share, without examples that either model was trained on.

    Attributes:
        before: positions of the shared examples in the test split of the reference's data, (n,).
        after: positions of the same examples in the test split of the candidate's data, (n,).
        fresh: positions of the examples that only the candidate's data have, (m,).
        leaks: one refusal for each split from which a model learned test examples.
    """

    before: Places
    after: Places
    fresh: Places
    leaks: tuple[Check, ...]

    @property
    def enough(self) -> bool:
        """Return whether at least half of the examples are shared, so that only shared examples are compared."""
        return len(self.after) >= _ENOUGH * (len(self.after) + len(self.fresh))

    @property
    def counting(self) -> Places:
        """Positions, in the candidate's split, of the examples to compare.

        They are the shared ones or, if fewer than half are shared, the shared and the fresh ones.
        """
        return self.after if self.enough else np.sort(np.concatenate([self.after, self.fresh]))


class _TrainedOn(NamedTuple):
    """A data set that a model was trained on.

    Attributes:
        role: the model's role: candidate or reference.
        training: the model's training, or the training of an earlier run that it continues.
        records: the records of each split of the data set.
    """

    role: str
    training: TrainSpec
    records: dict[str, Records]

    @property
    def data(self) -> str:
        """The data set's name and fingerprint."""
        return f"{self.training.recipe.dataset}-{self.training.fingerprint}"

    @property
    def learned(self) -> dict[str, Keys]:
        """The keys of the images with which the model was trained or chosen (validation), by split."""
        return {split: self.records[split].keys for split in (TRAINING, VALIDATION) if split in self.records}


def shared_examples(
    store: Store, reference: TrainSpec, candidate: TrainSpec, split: str, reporter: Reporter
) -> SharedExamples:
    """Find the test examples that two data sets share, by the identities and targets of their records.

    Args:
        store: the store.
        reference: the training of the reference.
        candidate: the training of the candidate.
        split: the split of both evaluations.
        reporter: warns of earlier training data that cannot be searched.

    Raises:
        StoreError: a data set and the copy of its table are missing.
        ArtifactError: a data set is damaged.
    """
    before, *earlier = _data_of(store, "reference", reference, reporter)
    after, *others = _data_of(store, "candidate", candidate, reporter)
    data_sets = [before, *earlier, after, *others]
    leaks = [
        leak
        for judged in {each.data: each for each in (before, after)}.values()
        for trained_on in data_sets
        for leak in _leaks(candidate, judged, trained_on, split)
    ]
    there, here = before.records[split], after.records[split]
    learned = [
        images for trained_on in data_sets if trained_on.data != after.data for images in trained_on.learned.values()
    ]
    unseen = ~np.isin(here.keys, np.concatenate([NOTHING.keys, *learned]))
    then, now = same_examples(there, here)
    kept = unseen[now]
    return SharedExamples(then[kept], now[kept], np.setdiff1d(np.flatnonzero(unseen), now), tuple(leaks))


def _data_of(store: Store, role: str, training: TrainSpec, reporter: Reporter) -> Iterator[_TrainedOn]:
    """Yield all data sets that a model was trained on, also by earlier runs, until one of these cannot be read."""
    yield _trained_on(store, role, training)
    while training.recipe.further:
        try:
            training = training_of(store, training.recipe.further)
            yield _trained_on(store, role, training)
        except PodlineError as error:
            reporter.warn(f"the earlier training data of the {role} cannot be searched for test examples: {error}")
            return


def _trained_on(store: Store, role: str, training: TrainSpec) -> _TrainedOn:
    return _TrainedOn(role, training, dict(known_records(store, training.recipe.dataset, training.fingerprint)))


def _leaks(candidate: TrainSpec, judged: _TrainedOn, trained_on: _TrainedOn, split: str) -> Iterator[Check]:
    """Yield a refusal for each split from which a model learned test examples; never within one data set."""
    tested = judged.records[split].keys
    for source, learned in trained_on.learned.items():
        places = np.flatnonzero(np.isin(tested, learned))
        if judged.data == trained_on.data or not len(places):
            continue
        named = places[:_NAMED].tolist()
        more = f" and {len(places) - _NAMED:,} more" if len(places) > _NAMED else ""
        names = ", ".join(f"{split}[{place}]" for place in named)
        there = ", ".join(f"{source}[{np.flatnonzero(learned == tested[place])[0]}]" for place in named)
        did = "was trained on them" if source == TRAINING else "was chosen by them"
        yield Check(
            rule="leakage",
            name=f"{names}{more}",
            refused=True,
            message=(
                f"found {plural(len(places), 'test example')} of {judged.data} ({names}{more}) among the "
                f"{split_in_words(source)} examples of {trained_on.data} ({there}{more}): the {trained_on.role} {did}, "
                f"by {trained_on.training.run}; keep each image in one split in every version of the data and "
                f"convert again, or start again with `podline models promote {candidate.run} --anyway`"
            ),
        )
