"""Compares two versions of the user's own images by their tables of records: added, removed, relabelled, moved.

Images have an identity, so versions with different settings can be compared as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from podline.arrays import Arrays
from podline.data.order import permuted
from podline.data.reader import SplitReader, open_split
from podline.data.record_table import NOTHING, Ids, Records, RecordTable, together
from podline.data.records import IMAGE, LABEL
from podline.datasets.census import equal_pairs
from podline.datasets.record_names import RecordNames, SourceFacts
from podline.documents.manifest import TRAIN, Manifest
from podline.errors import SettingsError
from podline.kinds.table import text_targets
from podline.store.contract import Store


class VersionRecords:
    """The records of a version, numbered over all splits; its table is read in parts.

    Attributes:
        manifest: the manifest of the version.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Open the table of records.

        Raises:
            SettingsError: the data set has no table.
            ArtifactError: the table or a shard is damaged.
        """
        if manifest.records is None:
            raise SettingsError(
                f"data set {manifest.dataset}: got no versions, expected a data set of your own images; "
                "`podline report` shows the changes since another run"
            )
        self.manifest, self._table = manifest, RecordTable.of(store, manifest)
        self.splits = [split.name for split in manifest.splits]
        self._firsts = np.cumsum([0, *(split.records for split in manifest.splits)])
        self._readers = dict[int, SplitReader]()
        self._store = store

    def of_split(self, split: str) -> Records:
        """Return the records of a split; nothing for a missing split."""
        if split not in self.splits:
            return NOTHING
        return self._table.records(split, int(self._firsts[self.splits.index(split)]))

    def facts(self, ids: Ids) -> SourceFacts:
        """Return the names of some records in the source, and the sizes of their pictures."""
        splits, found = self._splits_of(ids), RecordNames(self._store, self.manifest)
        names, pixels = np.empty(len(ids), object), np.empty(len(ids), np.int64)
        for number in np.unique(splits).tolist():
            mine = splits == number
            names[mine], pixels[mine] = found.facts(self.splits[number], ids[mine] - self._firsts[number])
        return SourceFacts(names.tolist(), pixels)

    def drawn(self, most: int, *, held_out: bool = False) -> Ids:
        """Draw records from all splits, or only from held-out ones."""
        numbers = [number for number, split in enumerate(self.splits) if not held_out or split != TRAIN]
        edges = np.cumsum([0, *np.diff(self._firsts)[numbers]])
        places = permuted(0, "old images", 0, int(edges[-1]), np.arange(min(most, edges[-1])))
        which = np.searchsorted(edges, places, side="right") - 1
        return places - edges[which] + self._firsts[numbers][which]

    def gather(self, ids: Ids, fields: Sequence[str] | None = None) -> Arrays:
        """Return fields of some records, in the given order; see :meth:`SplitReader.gather`."""
        names = fields or [field.name for field in self.manifest.fields]
        splits = self._splits_of(ids)
        parts, order = list[Arrays](), np.argsort(splits, kind="stable")
        for number in np.unique(splits).tolist():
            mine = ids[order][splits[order] == number] - self._firsts[number]
            parts.append(self._reader(number).gather(mine, names))
        back = np.argsort(order, kind="stable")
        return {name: np.concatenate([part[name] for part in parts])[back] for name in names} if parts else {}

    def _splits_of(self, ids: Ids) -> Ids:
        return np.searchsorted(self._firsts, ids, side="right") - 1

    def _reader(self, number: int) -> SplitReader:
        if number not in self._readers:
            manifest, split = self.manifest, self.splits[number]
            self._readers[number] = open_split(self._store, manifest.folder, manifest, split)
        return self._readers[number]

    def words(self, ids: Ids) -> list[str]:
        """Return the targets of some records as text."""
        names = [field.name for field in self.manifest.fields if field.name != IMAGE]
        found = self.gather(ids, names)
        return text_targets(self.manifest.kind).words(found, self.manifest.class_names) if found else []

    def named(self, ids: Ids) -> list[str]:
        """Return the names of some records, as ``train[3]``."""
        splits = self._splits_of(ids)
        places = zip(splits.tolist(), (ids - self._firsts[splits]).tolist(), strict=True)
        return [f"{self.splits[split]}[{place}]" for split, place in places]

    def classes(self, ids: Ids) -> list[str]:
        """Return the class of some records; an empty text for records with no class or several."""
        has_class = any((field.name, field.encoding) == (LABEL, "varint") for field in self.manifest.fields)
        return self.words(ids) if has_class else [""] * len(ids)


class VersionChanges(NamedTuple):
    """The changes from a version to another.

    Attributes:
        added: records of the later version.
        removed: records of the earlier version.
        relabelled: records of both with different targets, as two arrays.
        moved: records of both in different splits, as two arrays.
    """

    added: Ids
    removed: Ids
    relabelled: tuple[Ids, Ids]
    moved: tuple[Ids, Ids]


def version_changes(before: VersionRecords, after: VersionRecords) -> VersionChanges:
    """Compare two versions: first each split with itself, then the remaining records of all splits.

    Raises:
        ArtifactError: a record is damaged.
    """
    gone, come, relabelled = list[Records](), list[Records](), [(NOTHING.ids, NOTHING.ids)]

    def compare(then: Records, now: Records) -> tuple[Ids, Ids]:
        old, new = equal_pairs(then.keys, now.keys)
        maybe = then.digests[old] != now.digests[new]  # pixels or class numbers may differ as well
        ids = then.ids[old[maybe]], now.ids[new[maybe]]
        words = zip(before.words(ids[0]), after.words(ids[1]), strict=True)
        other = np.array([was != is_now for was, is_now in words], np.bool_)
        relabelled.append((ids[0][other], ids[1][other]))
        return old, new

    for split in dict.fromkeys([*before.splits, *after.splits]):
        then, now = before.of_split(split), after.of_split(split)
        old, new = compare(then, now)
        gone.append(then.without(old))
        come.append(now.without(new))
    removed, added = together(gone), together(come)
    old, new = compare(removed, added)
    differ = tuple(map(np.concatenate, zip(*relabelled, strict=True)))
    moved = removed.ids[old], added.ids[new]
    return VersionChanges(np.delete(added.ids, new), np.delete(removed.ids, old), (differ[0], differ[1]), moved)
