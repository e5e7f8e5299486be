"""Plans a version of the user's own images that extends an older one: only new records are written.

A record is unchanged if its image's file, its pixels and its targets are. The version's manifest equals that of a
conversion of all records at once, except for the places and first versions of records.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from podline.data.images.opening import Identities, ImagesSource
from podline.data.pixels import PixelSums, add_up, pixel_sums, without
from podline.data.reader import open_split
from podline.data.record_table import (
    DIGEST_BYTES,
    RECORDS,
    RecordTable,
    in_shards,
    rows_of,
    with_columns,
)
from podline.data.records import IMAGE, stored_layout
from podline.datasets.draft import Written
from podline.datasets.fingerprint import converter_settings, record_form
from podline.datasets.matching import Records, joined, matched, numbered, stored_identities, together
from podline.documents.manifest import (
    MANIFEST,
    Manifest,
    OlderShards,
    SplitInfo,
    dataset_folder,
    listed_files,
    read_manifest,
    stored_name,
)
from podline.documents.shard_table import ShardTable
from podline.errors import PodlineError
from podline.kinds.table import kind_named
from podline.stages.specs import ConvertSpec
from podline.store.contract import Store

compute: Any = pyarrow.compute  # its functions are created at import
ADDED, REMOVED, RELABELLED, MOVED = "added", "removed", "relabelled", "moved"
_READ_AT_ONCE, _ROWS = 1_000, 1 << 17
_BINARY = pa.binary(DIGEST_BYTES)

Ids = npt.NDArray[np.int64]
_FALSE = np.empty(0, np.bool_)


class Difference(NamedTuple):
    """The changes of a split's records since an older version.

    Attributes:
        records: number of records now.
        content: sha256 of the records' keys and digests, in their order.
        new: positions of records that the older version lacks.
        dead: positions, in the older version, of records that the split no longer has.
        relabelled: which dead records are still there with another digest.
    """

    records: int
    content: str
    new: Records
    dead: Records
    relabelled: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SplitGrowth:
    """The kept and new records of a split.

    Attributes:
        change: the changes since the older version.
        why: the reason for each dead record.
        older: the shards with the kept records.
        counts: number of kept records of each class.
        pixels: pixel sums of the kept records; None without any.
    """

    change: Difference
    why: npt.NDArray[np.str_]
    older: tuple[OlderShards, ...]
    counts: npt.NDArray[np.int64]
    pixels: PixelSums | None


@dataclass(frozen=True)
class Growth:
    """The plan of a version.

    Attributes:
        fingerprint: fingerprint of the version.
        base: the version that it extends, or None.
        before: the newest other version, mostly the base; another one after a return to an earlier content.
        table: the table of the base's records.
        splits: the splits of the source, and those that only the base has, which are now empty.
        changes: numbers of added, removed, relabelled and moved records since the previous version.
    """

    fingerprint: str
    base: Manifest | None
    before: Manifest | None
    table: RecordTable | None
    splits: Mapping[str, SplitGrowth]
    changes: Mapping[str, int]

    @property
    def new(self) -> dict[str, Ids]:
        """The positions of the records to write, by split."""
        return {name: split.change.new.ids for name, split in self.splits.items()}

    def prefix(self, dataset: str) -> str:
        """Return the prefix of new shards' names, so that a plan from another base never uses them."""
        return f"{dataset}.{self.base.fingerprint}" if self.base else dataset

    def infos(self, written: Mapping[str, Written]) -> tuple[tuple[SplitInfo, ...], dict[str, PixelSums]]:
        """Return the manifest's entry of each split, and the pixel sums by split.

        Args:
            written: the new shards by split.
        """
        infos, sums = [], {}
        for name, split in self.splits.items():
            part = written.get(name)
            if not split.change.records:
                continue
            sums[name] = pixels = add_up([each for each in (split.pixels, part and part.pixels) if each])
            infos.append(
                SplitInfo(
                    name=name,
                    records=split.change.records,
                    shards=part.shards if part else ShardTable.of([]),
                    class_counts=tuple((split.counts + (part.counts if part else 0)).tolist()),
                    mean=pixels.mean,
                    std=pixels.std,
                    older=split.older,
                    content=split.change.content,
                )
            )
        return tuple(infos), sums

    def rows(self, written: Mapping[str, Written]) -> Iterator[pa.Table]:
        """Yield the table of records in parts; see :meth:`infos`."""
        for name, split in self.splits.items():
            new, edges = split.change.new.ids, np.arange(0, split.change.records + _ROWS, _ROWS)
            edges = edges.clip(max=split.change.records)
            sizes = np.diff(edges - np.searchsorted(new, edges))  # of the kept records
            for first, end, old in zip(edges, edges[1:], _cut(self._stored(name, dead=False), sizes), strict=False):
                some, is_new = _places(new, int(first), int(end))
                both = pa.concat_tables([old, self._new_rows(name, some, written.get(name))])
                yield both.take(pa.array(np.argsort(np.argsort(is_new, kind="stable")))) if is_new.any() else old
        yield from map(self._named, self.table.ended() if self.table else ())
        for name, split in self.splits.items():
            yield from self._stored(name, dead=True) if len(split.change.dead.ids) else ()

    def _stored(self, name: str, *, dead: bool) -> Iterator[pa.Table]:
        """Yield the base's rows for the kept or the dead records of a split."""
        split, first = self.splits[name], 0
        for rows in self.table.of_split(name) if self.table else ():
            some, is_dead = _places(split.change.dead.ids, first, first + len(rows))
            found, first = self._named(rows.filter(pa.array(is_dead == dead))), first + len(rows)
            if dead:
                why = pa.array(split.why[some].tolist(), pa.string())
                found = with_columns(found, until=pa.repeat(self.fingerprint, len(found)), why=why)
            yield found

    def _named(self, rows: pa.Table) -> pa.Table:
        """Return rows of the base's table with shard names relative to another version of the data set."""
        shards = rows["shard"]
        moved = compute.binary_join_element_wise(f"../{self.base.fingerprint}/" if self.base else "", shards, "")
        return with_columns(rows, shard=compute.if_else(compute.starts_with(shards, "../"), shards, moved))

    def _new_rows(self, name: str, some: slice, part: Written | None) -> pa.Table:
        found = self.splits[name].change.new
        count = len(found.keys[some])
        if part is None:
            return rows_of({})
        columns = {
            "split": pa.repeat(name, count),
            "key": _fixed(found.keys[some]),
            "digest": _fixed(found.digests[some]),
            "since": pa.repeat(self.fingerprint, count),
        }
        return in_shards(rows_of(columns), part.shards, some.start)


def _places(ascending: Ids, first: int, end: int) -> tuple[slice, npt.NDArray[np.bool_]]:
    """Return the part of ascending positions from ``first`` to ``end``, and a mask of that range."""
    some, mask = slice(*np.searchsorted(ascending, [first, end]).tolist()), np.zeros(end - first, np.bool_)
    mask[ascending[some] - first] = True
    return some, mask


def _cut(tables: Iterator[pa.Table], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Yield rows in tables of the given sizes."""
    rest = rows_of({})
    for size in sizes:
        while len(rest) < size:
            rest = pa.concat_tables([rest, next(tables)])
        yield rest[:size]
        rest = rest[size:]


def fitting_base(store: Store, spec: ConvertSpec, source: ImagesSource, candidates: Iterator[str]) -> Manifest | None:
    """Return the first of some versions, by fingerprint, that a conversion can extend: same settings, same classes.

    A version with a missing file is skipped.
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
        except PodlineError:
            continue
        if found is None or found.records is None:
            continue
        has = (record_form(found.converter), found.kind, found.class_names, found.fields, found.record_length)
        if has == wanted and all(there and there.bytes == file.bytes for file, there in listed_files(store, found)):
            return found
    return None


def growth_of(store: Store, source: ImagesSource, fingerprint: str, base: Manifest | None) -> Growth:
    """Plan a version.

    Args:
        store: the store of the base.
        source: the source of all records.
        fingerprint: fingerprint of the version.
        base: manifest of the version to extend, or None.

    Raises:
        ArtifactError: a file of the base is damaged.
        StoreError: a file of the base cannot be read.
    """
    now = source.identities()
    table = RecordTable(store.local(stored_name(base.folder, RECORDS))) if base else None
    names = dict.fromkeys([*now, *(table.pixels if table else ())])
    found = {name: _difference(stored_identities(table, name), now.get(name, iter(()))) for name in names}
    splits = dict[str, SplitGrowth]()
    for name, change in found.items():
        elsewhere = [other.new.keys for at, other in found.items() if at != name]
        moved = np.isin(change.dead.keys, np.concatenate([*elsewhere, change.dead.keys[:0]]))
        why = np.where(change.relabelled, RELABELLED, np.where(moved, MOVED, REMOVED))
        counts, pixels = np.zeros(len(source.class_names), np.int64), None
        if base and table and name in table.pixels and change.records:
            counts, pixels = _statistics(store, base, table.pixels[name], name, change.dead.ids, source.kind)
        splits[name] = SplitGrowth(change, why, _older(base, table, name, change), counts, pixels)
    changes = Counter[str](chain.from_iterable(split.why.tolist() for split in splits.values()))
    changes[ADDED] = max(0, sum(len(each.new.ids) for each in found.values()) - changes[RELABELLED] - changes[MOVED])
    return Growth(fingerprint, base, base, table, splits, changes)


def _difference(then: Iterator[Identities], now: Iterator[Identities]) -> Difference:
    """Compare a split with an older version of it; keys ascend, and equal keys have one digest."""
    content, records, news, deads, relabelled = hashlib.sha256(), 0, list[Records](), list[Records](), [_FALSE]
    for before, after, old, new in matched(numbered(then), numbered(now)):
        content.update(joined(after.keys, after.digests))
        same = before.digests[old] == after.digests[new]
        news.append(after.without(new[same]))
        deads.append(dead := before.without(old[same]))
        ends = (np.searchsorted(after.keys, dead.keys, side) for side in ("left", "right"))
        relabelled.append(np.less(*ends))
        records += len(after.keys)
    return Difference(records, content.hexdigest(), together(news), together(deads), np.concatenate(relabelled))


def _older(base: Manifest | None, table: RecordTable | None, split: str, change: Difference) -> tuple[OlderShards, ...]:
    """Return the older versions' shards, all of a version together, if a split still has a record of them."""
    if base is None or table is None or change.records == len(change.new.ids):
        return ()
    info = base.split(split)
    every = (*info.older, OlderShards(fingerprint=base.fingerprint, shards=info.shards))
    used, first = set[str](), 0
    for rows in table.of_split(split, "shard"):
        _, is_dead = _places(change.dead.ids, first, first + len(rows))
        shards = rows["shard"].filter(pa.array(~is_dead)).unique().to_pylist()
        used |= {shard.split("/")[1] if shard.startswith("../") else base.fingerprint for shard in shards}
        first += len(rows)
        if len(used) == len(every):
            break
    return tuple(each for each in every if each.fingerprint in used)


def _statistics(
    store: Store, base: Manifest, pixels: PixelSums, split: str, dead: Ids, kind: str
) -> tuple[npt.NDArray[np.int64], PixelSums | None]:
    """Return the class counts and pixel sums of a base's split without some of its records."""
    counts = np.array(base.split(split).class_counts, np.int64)
    if len(dead):
        reader, census = open_split(store, base.folder, base, split), kind_named(kind).targets().census
        for first in range(0, len(dead), _READ_AT_ONCE):
            records = reader.gather(dead[first : first + _READ_AT_ONCE])
            pixels = without(pixels, pixel_sums(records[IMAGE]))
            counts = counts - census(records, len(counts))
    return counts, pixels if pixels.count else None


def _fixed(values: npt.NDArray[np.bytes_]) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(_BINARY, len(values), [None, pa.py_buffer(values.tobytes())])
