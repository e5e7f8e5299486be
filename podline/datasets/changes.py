"""What changed between two data sets: records added, removed, relabelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from podline.datasets.census import Census, SplitCensus, census_of, changes
from podline.documents.ledger_entry import ChangedRecords, Data, SplitChange
from podline.documents.manifest import MANIFEST, dataset_folder, read_manifest
from podline.errors import PodlineError, one_line
from podline.store.contract import Store

MOST_RECORDS, TOLD_RECORDS = 20, 6
"""Of the records that came, went or changed, so many are named, and so many of these in a sentence; all are counted."""

Change = dict[str, SplitChange] | str
"""What became of a data set's splits, by name; or why nobody knows."""


def changed_splits(
    store: Store, dataset: str, before: str, after: str, class_names: Sequence[str]
) -> dict[str, SplitChange]:
    """Compare a data set's splits, by name; those with the same records are left out.

    Args:
        store: the store.
        dataset: the data set's name.
        before: its fingerprint then …
        after: … and now.
        class_names: by label.

    Raises:
        StoreError: a data set is gone, and no census was taken of it.
        ArtifactError: one is damaged.
    """
    return differences(census_of(store, dataset, before), census_of(store, dataset, after), class_names)


def change_between(store: Store, before: Data, after: Data) -> Change:
    """Compare two data sets, or say in a line why that cannot be done."""
    try:
        folder = dataset_folder(after.dataset, after.fingerprint)
        names = read_manifest(store, folder).class_names if store.exists(f"{folder}/{MANIFEST}") else ()
        return changed_splits(store, after.dataset, before.fingerprint, after.fingerprint, names)
    except PodlineError as error:
        return one_line(error)


def differences(before: Census, after: Census, class_names: Sequence[str]) -> dict[str, SplitChange]:
    """Split → what changed in it between two censuses; splits without a change are left out."""
    nothing = SplitCensus(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    found = {}
    for split in dict.fromkeys([*before, *after]):
        then, now = before.get(split, nothing), after.get(split, nothing)
        change = changes(then, now)
        if any(change):
            found[split] = SplitChange(
                added=_moved(_named(split, now, place) for place in change.added),
                removed=_moved(_named(split, then, place) for place in change.removed),
                relabelled=_moved(
                    f"{_named(split, now, both.after)}{_labels(then, both.before, now, both.after, class_names)}"
                    for both in change.relabelled
                ),
            )
    return found


def in_words(change: SplitChange) -> str:
    """Describe a split's change: ``2 added (train[3], train[7]); 1 relabelled (train[5] cat → dog)``."""
    return "; ".join(_told(moved, what) for what, moved in change if moved.count)


def _told(moved: ChangedRecords, what: str) -> str:
    told = moved.records[:TOLD_RECORDS]
    more = moved.count - len(told)
    return f"{moved.count:,} {what} ({', '.join(told)}{f' and {more:,} more' if more else ''})"


def _moved(records: Iterable[str]) -> ChangedRecords:
    names, count = [], 0
    for name in records:
        count += 1
        if count <= MOST_RECORDS:
            names.append(name)
    return ChangedRecords(count=count, records=tuple(names))


def _named(split: str, census: SplitCensus, place: int) -> str:
    image = int(census.ids[place])
    return f"{split}[{place}]" if image < 0 else f"{split}[{place}] image {image}"


def _labels(then: SplitCensus, before: int, now: SplitCensus, after: int, class_names: Sequence[str]) -> str:
    labels = [int(then.labels[before]), int(now.labels[after])]
    if labels[0] == labels[1]:
        return ""  # people, or a second label
    old, new = (class_names[label] if 0 <= label < len(class_names) else str(label) for label in labels)
    return f" {old} → {new}"
