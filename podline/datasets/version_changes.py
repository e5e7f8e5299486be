"""Compares two versions of the user's own images by their tables of records: images added, removed, relabelled, moved.

An image is the same by its file, so that versions of other settings can be compared as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.arrays import Arrays
from podline.data.reader import SplitReader, open_split
from podline.data.record_table import RECORDS, RecordTable, stored_digests
from podline.data.records import IMAGE, LABEL
from podline.datasets.census import equal_pairs
from podline.documents.manifest import Manifest, stored_name
from podline.errors import SettingsError
from podline.kinds.table import text_targets
from podline.store.contract import Store

Ids = npt.NDArray[np.int64]
Keys = npt.NDArray[np.bytes_]


class VersionRecords:
    """The records of a version, those of all splits one after the other.

    Attributes:
        manifest: of the version.
        keys: the beginning of the sha256 of each image's file, (n,).
        digests: likewise of its pixels and targets.
        splits: the number of each record's split in the manifest.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Read the table of records.

        Raises:
            SettingsError: the data set has none.
            ArtifactError: the table or a shard is damaged.
        """
        if manifest.records is None:
            raise SettingsError(
                f"data set {manifest.dataset}: got one without versions, expected images of your own; `podline report` "
                "says what changed since another run"
            )
        self.manifest, table = manifest, RecordTable(store.local(stored_name(manifest.folder, RECORDS)))
        rows = [pa.concat_tables(table.of_split(split.name, "key", "digest")) for split in manifest.splits]
        self.keys, self.digests = (
            np.concatenate([stored_digests(each[name]) for each in rows]) for name in ("key", "digest")
        )
        self.splits = np.repeat(np.arange(len(rows)), list(map(len, rows)))
        self._firsts = np.cumsum([0, *map(len, rows)])
        self._readers = dict[int, SplitReader]()
        self._store = store

    def gather(self, ids: Ids, fields: Sequence[str] | None = None) -> Arrays:
        """Return fields of some records, in the order given; see :meth:`SplitReader.gather`."""
        names = fields or [field.name for field in self.manifest.fields]
        parts, order = list[Arrays](), np.argsort(self.splits[ids], kind="stable")
        for number in np.unique(self.splits[ids]).tolist():
            mine = ids[order][self.splits[ids[order]] == number] - self._firsts[number]
            parts.append(self._reader(number).gather(mine, names))
        back = np.argsort(order, kind="stable")
        return {name: np.concatenate([part[name] for part in parts])[back] for name in names} if parts else {}

    def _reader(self, number: int) -> SplitReader:
        if number not in self._readers:
            name = self.manifest.splits[number].name
            self._readers[number] = open_split(self._store, self.manifest.folder, self.manifest, name)
        return self._readers[number]

    def words(self, ids: Ids) -> list[str]:
        """Return the targets of some records in words."""
        names = [field.name for field in self.manifest.fields if field.name != IMAGE]
        found = self.gather(ids, names)
        return text_targets(self.manifest.kind).words(found, self.manifest.class_names) if found else []

    def named(self, ids: Ids) -> list[str]:
        """Return how some records are called, as ``train[3]``."""
        splits = self.splits[ids].tolist()
        places = (ids - self._firsts[self.splits[ids]]).tolist()
        return [f"{self.manifest.splits[split].name}[{place}]" for split, place in zip(splits, places, strict=True)]

    def classes(self, ids: Ids) -> list[str]:
        """Return the class of some records; "" where records have none, or several."""
        has_class = any((field.name, field.encoding) == (LABEL, "varint") for field in self.manifest.fields)
        return self.words(ids) if has_class else [""] * len(ids)


class VersionChanges(NamedTuple):
    """The changes from a version to another.

    Attributes:
        added: records of the version after.
        removed: records of the version before.
        relabelled: records of both, whose targets differ, as two arrays.
        moved: likewise; they are in another split.
    """

    added: Ids
    removed: Ids
    relabelled: tuple[Ids, Ids]
    moved: tuple[Ids, Ids]


def version_changes(before: VersionRecords, after: VersionRecords) -> VersionChanges:
    """Compare two versions.

    Raises:
        ArtifactError: a record is damaged.
    """
    then, now = equal_pairs(before.keys, after.keys)
    added, removed = np.delete(np.arange(len(after.keys)), now), np.delete(np.arange(len(before.keys)), then)
    split_names = [np.array([split.name for split in one.manifest.splits], "U") for one in (before, after)]
    moved = split_names[0][before.splits[then]] != split_names[1][after.splits[now]]
    maybe = np.flatnonzero(before.digests[then] != after.digests[now])  # or its pixels, or the classes' numbers
    words = zip(before.words(then[maybe]), after.words(now[maybe]), strict=True)
    differ = maybe[[old != new for old, new in words]] if len(maybe) else maybe
    return VersionChanges(added, removed, (then[differ], now[differ]), (then[moved], now[moved]))
