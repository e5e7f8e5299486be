"""Compare two data sets by their tables of records: records added, removed, relabelled, or moved to another split.

Records are compared by image identity and target, so data sets with different settings can be compared too. When a
validated data set is deleted, the store keeps a copy of its table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from podline.base.arrays import Arrays, Ids
from podline.base.errors import PodlineError, one_line
from podline.base.plain import plain
from podline.data.images.arrow_file import decoded
from podline.data.order import permuted
from podline.data.reader import SplitReader, open_split
from podline.data.record_table import NOTHING, Records, RecordTable, equal_pairs, together
from podline.data.records import IMAGE, LABEL
from podline.data.versions.record_names import RecordNames, SourceFacts
from podline.documents.completion import completion_name, read_artifact, record_files
from podline.documents.ledger_entry import ChangedRecords, Data, SplitChange
from podline.documents.manifest import MANIFEST, Manifest, dataset_folder, read_manifest
from podline.recipes.kind_table import facts_named
from podline.recipes.targets import TextTargets
from podline.stages.table import VALIDATE
from podline.store.contract import Store

FOLDER = "ledger/data"
MOST_RECORDS, TOLD_RECORDS = 20, 6
"""Largest numbers of changed records listed by name: in a stored change, and in a sentence."""

Change = dict[str, SplitChange] | str
"""Split → its changes; or the reason why two data sets cannot be compared."""


class KnownRecords(Mapping[str, Records]):
    """The records of a data set by split, numbered consecutively over all splits; the table is read split by split."""

    def __init__(self, table: RecordTable) -> None:
        self._table, sizes = table, table.sizes
        self.splits = list(sizes)
        self._firsts = np.cumsum([0, *sizes.values()])

    def __getitem__(self, split: str) -> Records:
        if split not in self.splits:
            raise KeyError(split)
        return self._table.records(split, int(self._firsts[self.splits.index(split)]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    def by_split(self, ids: Ids) -> Iterator[tuple[str, Ids, Ids]]:
        """Yield each split with some of the records ``ids``: its name, their indices in ``ids``, their positions."""
        splits = np.searchsorted(self._firsts, ids, side="right") - 1
        for number in np.unique(splits).tolist():
            mine = np.flatnonzero(splits == number)
            yield self.splits[number], mine, ids[mine] - self._firsts[number]

    def targets(self, ids: Ids) -> list[str]:
        """Return the stored target of each record as text."""
        found = np.empty(len(ids), object)
        for split, mine, places in self.by_split(ids):
            found[mine] = self[split].targets[places]
        return [plain(decoded(text)) for text in found]

    def named(self, ids: Ids) -> list[str]:
        """Return the positions of some records as text, such as ``train[3]``."""
        found = np.empty(len(ids), object)
        for split, mine, places in self.by_split(ids):
            found[mine] = [f"{split}[{place}]" for place in places.tolist()]
        return found.tolist()

    def in_split(self, ids: Ids, wanted: str) -> Ids:
        """Return the records among ``ids`` that belong to a split, ascending."""
        return next((np.sort(ids[mine]) for split, mine, _ in self.by_split(ids) if split == wanted), ids[:0])


class VersionRecords(KnownRecords):
    """The records of a data set whose shards still exist, so that images can be read."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Open the table of records.

        Raises:
            ArtifactError: the table is damaged, or an older Podline converted the data, with another table or none.
        """
        super().__init__(RecordTable.of(store, manifest))
        self.manifest, self._store, self._readers = manifest, store, dict[str, SplitReader]()

    def facts(self, ids: Ids) -> SourceFacts:
        """Return the names of some records in the source, and the sizes of their pictures."""
        table = RecordNames(self._store, self.manifest)
        names, pixels = np.empty(len(ids), object), np.empty(len(ids), np.int64)
        for split, mine, places in self.by_split(ids):
            names[mine], pixels[mine] = table.facts(split, places)
        return SourceFacts(names.tolist(), pixels)

    def sample(self, most: int) -> Ids:
        """Return the ids of at most ``most`` random records of all splits, the same on each call."""
        count = int(self._firsts[-1])
        return permuted(0, "old images", 0, count, np.arange(min(most, count)))

    def gather(self, ids: Ids, fields: Sequence[str] | None = None) -> Arrays:
        """Return fields of some records, in the given order; see :meth:`SplitReader.gather`. Empty without records."""
        names, parts, order = fields or [field.name for field in self.manifest.fields], list[Arrays](), [ids[:0]]
        for split, mine, places in self.by_split(ids):
            if split not in self._readers:
                self._readers[split] = open_split(self._store, self.manifest.folder, self.manifest, split)
            parts.append(self._readers[split].gather(places, names))
            order.append(mine)
        back = np.argsort(np.concatenate(order))
        return {name: np.concatenate([part[name] for part in parts])[back] for name in names} if parts else {}

    def classes(self, ids: Ids) -> list[str]:
        """Return the class name of each record; empty texts if the data set has no single label per record."""
        has_class = any((field.name, field.encoding) == (LABEL, "varint") for field in self.manifest.fields)
        return self.targets(ids) if has_class else [""] * len(ids)

    def words(self, ids: Ids) -> list[str]:
        """Return the target of each record as text for people; empty texts for kinds without such text."""
        targets = facts_named(self.manifest.kind).targets
        if not isinstance(targets, TextTargets) or not len(ids):
            return [""] * len(ids)
        found = self.gather(ids, [field.name for field in self.manifest.fields if field.name != IMAGE])
        return targets.words(found, self.manifest.class_names)


def known_records(store: Store, dataset: str, fingerprint: str) -> KnownRecords:
    """Return the records of a data set, or of the copy of its table if the data set was deleted.

    The copy is made at the first comparison of a validated data set.

    Raises:
        StoreError: neither the data set nor a copy exists, or reading fails.
        ArtifactError: the table is damaged, or an older Podline converted the data.
    """
    folder, stage = dataset_folder(dataset, fingerprint), f"{dataset}-{fingerprint}"
    copy = f"{FOLDER}/{stage}.parquet"
    if store.exists(copy) and not store.exists(f"{folder}/{MANIFEST}"):
        read_artifact(store, FOLDER, stage, copy)
        return KnownRecords(RecordTable(store.local(copy)))
    table = RecordTable.of(store, read_manifest(store, folder))
    if not store.exists(copy) and store.exists(completion_name(folder, VALIDATE.name)):
        store.publish_bytes(copy, table.path.read_bytes())
        record_files(store, FOLDER, stage, [copy])
    return KnownRecords(table)


class VersionChanges(NamedTuple):
    """The changed records between two data sets, as record numbers.

    Attributes:
        added: records only in the later data set.
        removed: records only in the earlier data set.
        relabelled: records with different targets: numbers in the earlier and in the later data set, in pairs.
        moved: records in different splits: numbers in the earlier and in the later data set, in pairs.
    """

    added: Ids
    removed: Ids
    relabelled: tuple[Ids, Ids]
    moved: tuple[Ids, Ids]


def version_changes(before: Mapping[str, Records], after: Mapping[str, Records]) -> VersionChanges:
    """Compare two data sets: first the records of each split, then the unmatched records across splits.

    The order of records is ignored; copies of an image are matched one to one.

    Raises:
        ArtifactError: a table is damaged.
    """
    gone, come, relabelled = list[Records](), list[Records](), [(NOTHING.ids, NOTHING.ids)]

    def compare(then: Records, now: Records) -> tuple[Ids, Ids]:
        old, new = equal_pairs(then.keys, now.keys)
        other = then.targets[old] != now.targets[new]
        relabelled.append((then.ids[old[other]], now.ids[new[other]]))
        return old, new

    for split in dict.fromkeys([*before, *after]):
        then, now = before.get(split, NOTHING), after.get(split, NOTHING)
        old, new = compare(then, now)
        gone.append(then.without(old))
        come.append(now.without(new))
    removed, added = together(gone), together(come)
    old, new = compare(removed, added)
    differ = tuple(map(np.concatenate, zip(*relabelled, strict=True)))
    moved = removed.ids[old], added.ids[new]
    return VersionChanges(np.delete(added.ids, new), np.delete(removed.ids, old), (differ[0], differ[1]), moved)


def same_examples(before: Records, after: Records) -> tuple[Ids, Ids]:
    """Return the positions in two splits of records with equal image and target: two int64 arrays (n,), in pairs."""
    then, now = equal_pairs(before.keys, after.keys)
    same = before.targets[then] == after.targets[now]
    return then[same], now[same]


def change_between(store: Store, before: Data, after: Data) -> Change:
    """Return the changes of each changed split between two versions, or the reason why they cannot be compared."""
    try:
        then, now = (known_records(store, after.dataset, data.fingerprint) for data in (before, after))
        return dict(_of_splits(then, now, version_changes(then, now)))
    except PodlineError as error:
        return one_line(error)


def _of_splits(then: KnownRecords, now: KnownRecords, changes: VersionChanges) -> Iterator[tuple[str, SplitChange]]:
    """Yield each split's changes; a moved record counts as removed from one split and added to the other."""
    added = np.concatenate([changes.added, changes.moved[1]])
    removed = np.concatenate([changes.removed, changes.moved[0]])
    stayed = ~np.isin(changes.relabelled[1], changes.moved[1])
    old, new = (side[stayed] for side in changes.relabelled)
    for split in dict.fromkeys([*then, *now]):
        mine = np.flatnonzero(np.isin(new, now.in_split(new, split)))
        shown = mine[:MOST_RECORDS]
        texts = zip(now.named(new[shown]), then.targets(old[shown]), now.targets(new[shown]), strict=True)
        relabels = tuple(f"{name} {was} → {is_now}" for name, was, is_now in texts)
        change = SplitChange(
            added=_changed(now, now.in_split(added, split)),
            removed=_changed(then, then.in_split(removed, split)),
            relabelled=ChangedRecords(count=len(mine), records=relabels),
        )
        if any(changed.count for _, changed in change):
            yield split, change


def _changed(records: KnownRecords, ids: Ids) -> ChangedRecords:
    return ChangedRecords(count=len(ids), records=tuple(records.named(ids[:MOST_RECORDS])))


def in_words(change: SplitChange) -> str:
    """Describe a split's changes as text: ``2 added (train[3], train[7]); 1 relabelled (train[5] cat → dog)``."""
    return "; ".join(_listed(records, what) for what, records in change if records.count)


def _listed(changed: ChangedRecords, what: str) -> str:
    shown = changed.records[:TOLD_RECORDS]
    more = changed.count - len(shown)
    return f"{changed.count:,} {what} ({', '.join(shown)}{f' and {more:,} more' if more else ''})"
