"""Plan the records of a new version of a data set, so that only new records are written.

A record is unchanged if its image's identity, its pixels and its targets are. The manifest of the new version equals
that of a conversion of all records at once, except for the shards that contain the records.
The *base* of a version is the older version whose shards it also uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.base.arrays import Ids
from podline.base.errors import PermanentError
from podline.data.pixels import PixelSums, add_up, pixel_sums, without
from podline.data.reader import open_split
from podline.data.record_table import (
    NOTHING,
    Records,
    RecordTable,
    coded,
    digest_column,
    equal_pairs,
    in_shards,
    rows_of,
    with_columns,
)
from podline.data.records import IMAGE, stored_layout
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import converter_settings, record_form
from podline.data.versions.manifest_building import Written
from podline.data.versions.version_changes import KnownRecords, version_changes
from podline.documents.manifest import (
    MANIFEST,
    FileInfo,
    Manifest,
    OlderShards,
    SplitInfo,
    dataset_folder,
    listed_files,
    read_manifest,
)
from podline.documents.shard_table import ShardTable
from podline.recipes.kind_table import facts_named
from podline.stages.specs import ConvertSpec
from podline.store.contract import Store

CHANGES = ("added", "removed", "relabelled", "moved")
_READ_AT_ONCE = 1_000


@dataclass(frozen=True)
class SplitGrowth:
    """The kept, new and dead records of a split.

    Attributes:
        records: number of records in the new version.
        content: sha256 of the records' keys and digests, in the order of the records.
        new: records that the base version lacks.
        dead: records of the base version that the new version lacks.
        older: the shards of older versions with the kept records.
        counts: number of kept records of each class, (classes,).
        pixels: pixel sums of the kept records; None if there are none.
    """

    records: int
    content: str
    new: Records
    dead: Records
    older: tuple[OlderShards, ...]
    counts: npt.NDArray[np.int64]
    pixels: PixelSums | None

    @classmethod
    def rewritten(cls, records: Records, classes: int) -> Self:
        """Return the plan that writes all records of a split anew, in their order."""
        new = Records.of(*records[1:])
        return cls(len(new.ids), new.content(), new, NOTHING, (), np.zeros(classes, np.int64), None)


@dataclass(frozen=True)
class Growth:
    """The plan of a new version.

    Attributes:
        fingerprint: fingerprint of the new version.
        base: the version whose shards are reused, or None.
        before: the newest other version that fits, usually the base; they differ after a return to earlier content.
        table: the base's table of records; None without a base.
        splits: split → its plan; splits that only the base has are included, without records.
        changes: numbers of added, removed, relabelled and moved records since ``before``.
    """

    fingerprint: str
    base: Manifest | None
    before: Manifest | None
    table: RecordTable | None
    splits: Mapping[str, SplitGrowth]
    changes: Mapping[str, int]

    @property
    def new(self) -> dict[str, Ids]:
        """The positions in the source of the records to write, by split."""
        return {name: split.new.ids for name, split in self.splits.items()}

    def prefix(self, dataset: str) -> str:
        """Return the name prefix of new shards; it includes the base, so plans from different bases never collide."""
        return f"{dataset}.{self.base.fingerprint}" if self.base else dataset

    def infos(
        self, written: Mapping[str, Written], truths: Mapping[str, FileInfo]
    ) -> tuple[tuple[SplitInfo, ...], dict[str, PixelSums]]:
        """Return the manifest entry of each split that has records, and the pixel sums by split.

        ``written`` has the new shards by split, ``truths`` the file of true poses by split.
        """
        infos, sums = [], {}
        for name, split in self.splits.items():
            part = written.get(name)
            if not split.records:
                continue
            sums[name] = pixels = add_up([each for each in (split.pixels, part and part.pixels) if each])
            infos.append(
                SplitInfo(
                    name=name,
                    records=split.records - len(split.new.ids) + (sum(part.shards.lengths) if part else 0),
                    shards=part.shards if part else ShardTable.of([]),
                    class_counts=tuple((split.counts + (part.counts if part else 0)).tolist()),
                    mean=pixels.mean,
                    std=pixels.std,
                    older=split.older,
                    content=split.content,
                    truth=truths.get(name),
                )
            )
        return tuple(infos), sums

    def rows(self, written: Mapping[str, Written]) -> pa.Table:
        """Return the new version's table of records, dead records included; see :meth:`infos`."""
        current = [self._rows_of(name, written.get(name)) for name in self.splits]
        gone = [self._stored(name).take(split.dead.ids) for name, split in self.splits.items()]
        dead = [self._named(self.table.dead())] if self.table else []
        return pa.concat_tables([*current, *dead, *(with_columns(rows, split=None) for rows in gone)])

    def _rows_of(self, name: str, part: Written | None) -> pa.Table:
        """Return the table rows of a split's records: rows kept from the base, new rows inserted at their positions."""
        kept, change = self._stored(name), self.splits[name]
        kept = kept.take(np.delete(np.arange(len(kept)), change.dead.ids))
        if part is None:
            return kept
        columns = {
            "split": name,
            "key": digest_column(change.new.keys),
            "digest": digest_column(change.new.digests),
            "target": pa.array(change.new.targets, pa.binary()).dictionary_encode(),
        }
        both = pa.concat_tables([in_shards(rows_of(columns), part.shards), kept]).unify_dictionaries()
        count, new = len(change.new.ids), np.arange(len(change.new.ids))
        return both.take(np.insert(count + np.arange(len(kept)), change.new.ids - new, new))

    def _stored(self, name: str) -> pa.Table:
        """Return the rows of a split in the base's table of records."""
        return self._named(self.table.of_split(name)) if self.table else rows_of({})

    def _named(self, rows: pa.Table) -> pa.Table:
        """Return rows of the base's table with shard paths relative to the new version's folder."""
        above = f"../{self.base.fingerprint}/" if self.base else ""
        codes, files = coded(rows["shard"])
        names = pa.array([name if name.startswith("../") else above + name for name in files], pa.string())
        return with_columns(rows, shard=pa.DictionaryArray.from_arrays(codes, names))


def fitting_base(store: Store, spec: ConvertSpec, source: Source, candidates: Iterator[str]) -> Manifest | None:
    """Return the manifest of the first candidate (a fingerprint) with the same settings, kind, classes and fields.

    None if there is none. A version with a missing file or damaged manifest is skipped.
    """
    layout = stored_layout(source.features)
    wanted = (
        record_form(converter_settings(spec)),
        source.kind,
        source.class_names,
        layout.fields,
        layout.record_length,
    )
    for known in candidates:
        folder = dataset_folder(spec.dataset, known)
        try:
            found = read_manifest(store, folder) if store.exists(f"{folder}/{MANIFEST}") else None
        except PermanentError:
            continue
        if found is None or found.records is None:
            continue
        has = (record_form(found.converter), found.kind, found.class_names, found.fields, found.record_length)
        if has == wanted and all(there and there.bytes == file.bytes for file, there in listed_files(store, found)):
            return found
    return None


def growth_of(store: Store, source: Source, fingerprint: str, base: Manifest | None, before: Manifest | None) -> Growth:
    """Plan the version with a fingerprint; see :class:`Growth` for ``base`` and ``before``.

    Raises:
        ArtifactError: a file of the base is damaged.
        StoreError: a file of the base cannot be read.
    """
    now, table = source.identities(), RecordTable.of(store, base) if base else None
    names = dict.fromkeys([*now, *(table.pixels if table else ())])
    then = {name: table.records(name) if table else NOTHING for name in names}
    splits = dict[str, SplitGrowth]()
    for name in names:
        wanted = now.get(name, NOTHING)
        old, new = equal_pairs(then[name].keys, wanted.keys)
        same = then[name].digests[old] == wanted.digests[new]
        fresh, dead = wanted.without(new[same]), then[name].without(old[same])
        counts, pixels, older = np.zeros(len(source.class_names), np.int64), None, ()
        if base and table and name in table.pixels and len(wanted.ids):
            counts, pixels = _statistics(store, base, table.pixels[name], name, dead.ids, source.kind)
            older = _older(base, table, name, dead.ids) if same.any() else ()
        splits[name] = SplitGrowth(len(wanted.ids), wanted.content(), fresh, dead, older, counts, pixels)
    changes = version_changes(KnownRecords(RecordTable.of(store, before)) if before else {}, now)
    counts = map(len, (changes.added, changes.removed, changes.relabelled[0], changes.moved[0]))
    return Growth(fingerprint, base, before, table, splits, dict(zip(CHANGES, counts, strict=True)))


def _older(base: Manifest, table: RecordTable, split: str, dead: Ids) -> tuple[OlderShards, ...]:
    """Return the shards of each older version of which the split keeps a record."""
    info = base.split(split)
    codes, names = coded(table.of_split(split, "shard")["shard"])
    kept = [names[code] for code in np.unique(np.delete(codes, dead))]
    used = {name.split("/")[1] if name.startswith("../") else base.fingerprint for name in kept}
    every = (*info.older, OlderShards(fingerprint=base.fingerprint, shards=info.shards))
    return tuple(each for each in every if each.fingerprint in used)


def _statistics(
    store: Store, base: Manifest, pixels: PixelSums, split: str, dead: Ids, kind: str
) -> tuple[npt.NDArray[np.int64], PixelSums | None]:
    """Return the class counts and pixel sums of a base's split without its dead records."""
    counts = np.array(base.split(split).class_counts, np.int64)
    if len(dead):
        reader, census = open_split(store, base.folder, base, split), facts_named(kind).targets.census
        for first in range(0, len(dead), _READ_AT_ONCE):
            records = reader.gather(dead[first : first + _READ_AT_ONCE])
            pixels = without(pixels, pixel_sums(records[IMAGE]))
            counts = counts - census(records, len(counts))
    return counts, pixels if pixels.count else None
