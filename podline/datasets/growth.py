"""Plans a version of the user's own images that goes on from an older one: new records alone are written.

A record is the same if its image's file, its pixels and its targets are. What a version says of its records equals what
a conversion of all of them at once says; only where they lie, and since when, differs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    read_records,
    rows_of,
    stored_digests,
    with_columns,
)
from podline.data.records import IMAGE, stored_layout
from podline.datasets.census import equal_pairs
from podline.datasets.draft import Written
from podline.datasets.fingerprint import converter_settings, record_form
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

compute: Any = pyarrow.compute  # its functions are made when it is imported
ADDED, REMOVED, RELABELLED, MOVED = "added", "removed", "relabelled", "moved"
_READ_AT_ONCE = 1_000
_BINARY = pa.binary(DIGEST_BYTES)

Ids = npt.NDArray[np.int64]


class SplitGrowth(NamedTuple):
    """The records of a split: those that the older version has, and new ones.

    Attributes:
        now: all records, in their order.
        kept: which of them the older version has, ascending.
        new: the others.
        rows: of the table, of ``kept``.
        older: the shards that have these.
        counts: of each class, in ``kept``.
        pixels: likewise the sums; None of no record.
    """

    now: Identities
    kept: Ids
    new: Ids
    rows: pa.Table
    older: tuple[OlderShards, ...]
    counts: npt.NDArray[np.int64]
    pixels: PixelSums | None


@dataclass(frozen=True)
class Growth:
    """A version to be.

    Attributes:
        fingerprint: its own.
        base: the version that it goes on from, if any.
        before: the newest version but it, mostly the base; a source that returned to an earlier content has another.
        splits: those of the source.
        dead: rows of the table: records that it has no more.
        changes: how many records were added, removed, relabelled, or moved to another split, since the one before.
    """

    fingerprint: str
    base: Manifest | None
    before: Manifest | None
    splits: Mapping[str, SplitGrowth]
    dead: pa.Table
    changes: Mapping[str, int]

    @property
    def new(self) -> dict[str, Ids]:
        """Split → the positions of records that are written."""
        return {name: split.new for name, split in self.splits.items()}

    def prefix(self, dataset: str) -> str:
        """Return how the names of new shards begin: a plan from another base never takes them for its own."""
        return f"{dataset}.{self.base.fingerprint}" if self.base else dataset

    def infos(self, written: Mapping[str, Written]) -> tuple[tuple[SplitInfo, ...], RecordTable]:
        """Return what the manifest says of each split, and the table of records.

        Args:
            written: what new records became, of splits that have some.
        """
        infos, tables, sums = [], [], {}
        for name, split in self.splits.items():
            part = written.get(name)
            pixels = add_up([each for each in (split.pixels, part and part.pixels) if each])
            infos.append(
                SplitInfo(
                    name=name,
                    records=len(split.now.keys),
                    shards=part.shards if part else ShardTable.of([]),
                    class_counts=tuple((split.counts + (part.counts if part else 0)).tolist()),
                    mean=pixels.mean,
                    std=pixels.std,
                    older=split.older,
                    content=_content_of(split.now),
                )
            )
            rows = pa.concat_tables([split.rows, self._new_rows(name, split, part)])
            tables.append(rows.take(pa.array(np.argsort(np.concatenate([split.kept, split.new])))))
            sums[name] = pixels
        return tuple(infos), RecordTable(pa.concat_tables([*tables, self.dead]), sums)

    def _new_rows(self, name: str, split: SplitGrowth, part: Written | None) -> pa.Table:
        if part is None:
            return rows_of({})
        columns = {
            "split": pa.repeat(name, len(split.new)),
            "key": _fixed(split.now.keys[split.new]),
            "digest": _fixed(split.now.digests[split.new]),
            "since": pa.repeat(self.fingerprint, len(split.new)),
        }
        return in_shards(rows_of(columns), part.shards)


def fitting_base(store: Store, spec: ConvertSpec, source: ImagesSource, candidates: Iterator[str]) -> Manifest | None:
    """Return the first of some versions, by fingerprint, that a conversion can go on from: same settings, same classes.

    One that lacks a file is passed over.
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
        store: with the base.
        source: of all records.
        fingerprint: of the version.
        base: what it goes on from.

    Raises:
        ArtifactError: a file of the base is damaged.
        StoreError: it cannot be read.
    """
    identities = source.identities()
    nothing = rows_of({})
    table = _table(store, base) if base else RecordTable(nothing, {})
    splits, gone = dict[str, SplitGrowth](), [table.rows.filter(compute.is_valid(table.rows["until"]))]
    for name in dict.fromkeys([*identities, *table.pixels]):
        rows = table.of_split(name)
        now = identities.get(name, _identities(nothing))
        then, kept = equal_pairs(_joined(_identities(rows)), _joined(now))
        dead = np.delete(np.arange(len(rows)), then)
        gone.append(_ended(rows.take(pa.array(dead)), fingerprint, name, identities))
        if name in identities:
            counts, pixels = _statistics(store, base, table, name, dead, len(source.class_names), source.kind)
            live = rows.take(pa.array(then))
            new = np.delete(np.arange(len(now.keys)), kept)
            splits[name] = SplitGrowth(now, kept, new, live, _older(base, name, live), counts, pixels)
    ended = pa.concat_tables(gone[1:])["why"].to_pylist()
    changes = Counter[str](ended)
    changes[ADDED] = max(0, sum(len(split.new) for split in splits.values()) - changes[RELABELLED] - changes[MOVED])
    return Growth(fingerprint, base, base, splits, pa.concat_tables(gone), changes)


def _table(store: Store, base: Manifest) -> RecordTable:
    """Return a version's table, its shards named as another version of the data set names them."""
    table = read_records(store.local(stored_name(base.folder, RECORDS)))
    shards = table.rows["shard"]
    moved = compute.binary_join_element_wise(f"../{base.fingerprint}/", shards, "")
    named = compute.if_else(compute.starts_with(shards, "../"), shards, moved)
    return table._replace(rows=with_columns(table.rows, shard=named))


def _ended(rows: pa.Table, fingerprint: str, split: str, now: Mapping[str, Identities]) -> pa.Table:
    """Return rows of records that are no more, with the reason."""
    keys = _identities(rows).keys
    elsewhere = [found.keys for name, found in now.items() if name != split]
    why = np.where(np.isin(keys, np.concatenate([*elsewhere, keys[:0]])), MOVED, REMOVED)
    if split in now:
        why = np.where(np.isin(keys, now[split].keys), RELABELLED, why)
    return with_columns(rows, until=pa.repeat(fingerprint, len(rows)), why=pa.array(why.tolist(), pa.string()))


def _older(base: Manifest | None, split: str, live: pa.Table) -> tuple[OlderShards, ...]:
    """Return the shards of older versions, those of each as a whole, of which a split still has a record."""
    if base is None or not len(live):
        return ()
    info = base.split(split)
    every = (*info.older, OlderShards(fingerprint=base.fingerprint, shards=info.shards))
    used = {shard.split("/")[1] for shard in live["shard"].unique().to_pylist()}
    return tuple(each for each in every if each.fingerprint in used)


def _statistics(
    store: Store, base: Manifest | None, table: RecordTable, split: str, dead: Ids, classes: int, kind: str
) -> tuple[npt.NDArray[np.int64], PixelSums | None]:
    """Return the class counts and the pixel sums of a base's split without some of its records."""
    if base is None or split not in table.pixels:
        return np.zeros(classes, np.int64), None
    counts, pixels = np.array(base.split(split).class_counts, np.int64), table.pixels[split]
    if len(dead):
        reader, census = open_split(store, base.folder, base, split), kind_named(kind).targets().census
        for first in range(0, len(dead), _READ_AT_ONCE):
            records = reader.gather(dead[first : first + _READ_AT_ONCE])
            pixels = without(pixels, pixel_sums(records[IMAGE]))
            counts = counts - census(records, classes)
    return counts, pixels if pixels.count else None


def content_of(rows: pa.Table) -> str:
    """Return the checksum of which records a split has, of its rows of the table of records."""
    return _content_of(_identities(rows))


def _content_of(identities: Identities) -> str:
    return hashlib.sha256(_joined(identities).tobytes()).hexdigest()


def _identities(rows: pa.Table) -> Identities:
    return Identities(*(stored_digests(rows[name]) for name in ("key", "digest")))


def _joined(found: Identities) -> npt.NDArray[np.bytes_]:
    """Return the key and the digest of each record in one."""
    columns = [np.ascontiguousarray(column).view(np.uint8).reshape(-1, DIGEST_BYTES) for column in found]
    return np.concatenate(columns, axis=1).view(f"S{2 * DIGEST_BYTES}").ravel()


def _fixed(values: npt.NDArray[np.bytes_]) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(_BINARY, len(values), [None, pa.py_buffer(values.tobytes())])
