"""The table of records of a data set: each record's split, image and target, and its position in a shard.

The records of the data set come first, ordered by split. Dead records follow: only earlier versions of the data set use
them, but they are in the shards. The column ``shard`` has file names from the manifest. A record has a key (its image's
identity) and a digest (of its pixels and targets). ``target`` is text, whatever the layout of the records.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from podline.base.arrays import Ids
from podline.base.errors import ArtifactError
from podline.base.plurals import plural
from podline.data.identity import IDENTITY_BYTES
from podline.data.pixels import PixelSums
from podline.documents.manifest import FileInfo, Manifest, SplitInfo, stored_name
from podline.documents.shard_table import ShardTable
from podline.store import digests
from podline.store.contract import Store, explained

RECORDS = "records.parquet"
"""The table's name in a data set's folder."""
COLUMNS = ("split", "key", "digest", "target", "shard", "position")
_TEXTS = ("split", "target", "shard")
_DIGEST = pa.binary(IDENTITY_BYTES)
_STORED = pa.schema(zip(COLUMNS, (pa.string(), _DIGEST, _DIGEST, pa.binary(), pa.string(), pa.int64()), strict=True))
# In memory, text columns are dictionary-encoded: a few bytes per row.
_SCHEMA = pa.schema(
    {field.name: pa.dictionary(pa.int32(), field.type) if field.name in _TEXTS else field.type for field in _STORED}
)
_PIXELS = b"pixels"
_AT_ONCE, _ROW_GROUP = 1 << 17, 1 << 20

pc: Any = pyarrow.compute  # its functions are created at import
Digests = npt.NDArray[np.bytes_]
Texts = npt.NDArray[np.object_]
_OLDER = "cannot be compared: it was converted by an older Podline; convert the data again"


class Records(NamedTuple):
    """Some records of a version.

    Attributes:
        ids: numbers of the records, ascending, int64 (n,).
        keys: identities of the records' images, S16 (n,).
        digests: digests of the records' pixels and targets, S16 (n,).
        targets: the records' targets as encoded text (bytes), object (n,).
    """

    ids: Ids
    keys: Digests
    digests: Digests
    targets: Texts

    @classmethod
    def of(cls, keys: Digests, digests: Digests, targets: Texts, first: int = 0) -> Self:
        """Return records numbered from ``first`` on."""
        return cls(np.arange(first, first + len(keys)), keys, digests, targets)

    def some(self, places: Ids) -> Self:
        """Return the records at some positions."""
        return self._make(column[places] for column in self)

    def without(self, places: Ids) -> Self:
        """Return all records except those at some positions."""
        return self._make(np.delete(column, places) for column in self)

    def content(self) -> str:
        """Return the sha256 of all keys and digests, in order."""
        both = [np.ascontiguousarray(column).view(np.uint8).reshape(-1, IDENTITY_BYTES) for column in self[1:3]]
        return hashlib.sha256(np.concatenate(both, axis=1).tobytes()).hexdigest()


_NO_DIGESTS = np.empty(0, f"S{IDENTITY_BYTES}")
NOTHING = Records.of(_NO_DIGESTS, _NO_DIGESTS, np.empty(0, object))


def together(parts: Iterable[Records]) -> Records:
    """Concatenate records."""
    return NOTHING._make(map(np.concatenate, zip(NOTHING, *parts, strict=True)))


def equal_pairs(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> tuple[Ids, Ids]:
    """Pair the k-th occurrence of a value in ``before`` with its k-th occurrence in ``after``.

    Returns:
        The positions of the pairs in ``before`` and in ``after``, (pairs,) each, in the order of ``after``.
    """
    _, which = np.unique(np.concatenate([before, after]), return_inverse=True)
    # Together with its number of earlier occurrences, a value is unique in each array.
    keys = [codes + len(which) * _earlier(codes) for codes in np.split(which, [len(before)])]
    _, then, now = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    order = np.argsort(now)
    return then[order], now[order]


def _earlier(values: Ids) -> Ids:
    """Return how many equal values come before each value: int64 (n,)."""
    order = np.argsort(values, kind="stable")
    earlier = np.empty(len(values), np.int64)
    earlier[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return earlier


class RecordTable:
    """A table of records in a file.

    Attributes:
        path: path of a file from :func:`publish_records`.
        pixels: split → the sums of its pixels.
    """

    def __init__(self, path: Path) -> None:
        """Open the table.

        Raises:
            ArtifactError: the file is not a table of records, or an older Podline wrote it.
        """
        self.path = path
        with _explained(path):
            schema = pq.read_schema(path)
            sums = json.loads(schema.metadata[_PIXELS])
            self.pixels = {split: PixelSums.model_validate(one) for split, one in sums.items()}
        if tuple(schema.names) != COLUMNS:
            raise ArtifactError(f"{path} {_OLDER}")

    @classmethod
    def of(cls, store: Store, manifest: Manifest) -> Self:
        """Return the table of a data set.

        Raises:
            ArtifactError: the table is damaged, or an older Podline converted the data, with another table or none.
        """
        if manifest.records is None:
            raise ArtifactError(f"{store.where(manifest.folder)} {_OLDER}")
        return cls(store.local(stored_name(manifest.folder, RECORDS)))

    def records(self, split: str, first: int = 0) -> Records:
        """Return the records of a split, numbered from ``first`` on."""
        rows = self.of_split(split, "key", "digest", "target")
        codes, texts = coded(rows["target"])
        targets = np.array(texts, object)[codes]
        return Records.of(stored_digests(rows["key"]), stored_digests(rows["digest"]), targets, first)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of records of each split, in the order of the table."""
        splits = self._rows(pc.field("split").is_valid(), ["split"])["split"].unify_dictionaries()
        return {each["values"]: each["counts"] for each in splits.value_counts().to_pylist()}

    def of_split(self, split: str, *columns: str) -> Any:
        """Return the rows of a split's records in order, as an Arrow table with some columns (default: all)."""
        return self._rows(pc.field("split") == split, columns or COLUMNS)

    def dead(self) -> Any:
        """Return the rows of records that only earlier versions have."""
        return self._rows(pc.field("split").is_null(), COLUMNS)

    def keys(self) -> npt.NDArray[np.bytes_]:
        """Return the keys of all records, including those that only earlier versions have."""
        return stored_digests(self._rows(pc.scalar(True), ["key"])["key"])

    def _rows(self, wanted: Any, columns: Sequence[str]) -> Any:
        schema = pa.schema([_SCHEMA.field(name) for name in columns])
        with _explained(self.path), pq.ParquetFile(self.path, pre_buffer=False, read_dictionary=_TEXTS) as file:
            read = dict.fromkeys([*columns, "split"])
            batches = file.iter_batches(_AT_ONCE, columns=list(read))
            return pa.Table.from_batches(
                [batch.filter(wanted).select(columns).cast(schema) for batch in batches], schema
            )


def publish_records(store: Store, folder: str, rows: Any, pixels: Mapping[str, PixelSums]) -> FileInfo:
    """Publish a table of records in a version's folder; return the table's entry in the manifest.

    The rows are those of :func:`rows_of`; ``split`` is null for records that only earlier versions have. ``pixels``:
    split → the sums of its pixels.
    """
    sums = {split: sums.model_dump(mode="json") for split, sums in pixels.items()}
    with store.workspace("records") as workspace:
        path = workspace / RECORDS
        with (
            explained("write", path),
            pq.ParquetWriter(
                path,
                _STORED.with_metadata({_PIXELS: json.dumps(sums).encode()}),
                compression="zstd",
                use_dictionary=_TEXTS,  # pyright: ignore[reportArgumentType] (its stub)
                column_encoding={"position": "DELTA_BINARY_PACKED", "key": "PLAIN", "digest": "PLAIN"},
                write_statistics=False,
            ) as file,
        ):
            for first in range(0, max(1, len(rows)), _ROW_GROUP):
                file.write_table(rows[first : first + _ROW_GROUP].cast(_STORED).combine_chunks())
        info = FileInfo(file=RECORDS, bytes=path.stat().st_size, sha256=digests.of_file(path))
        store.publish_file(path, f"{folder}/{RECORDS}", replace=True, flush=False)
    return info


def rows_of(columns: Mapping[str, Any]) -> Any:
    """Build rows of a table of records from columns; a string is repeated in all rows, missing columns are null."""
    count = max((len(column) for column in columns.values() if not isinstance(column, str | None)), default=0)
    found = []
    for field in _SCHEMA:
        column = columns.get(field.name, None)
        whole = pa.repeat(pa.scalar(column, pa.string()), count) if isinstance(column, str) else column
        found.append(pa.nulls(count, field.type) if whole is None else whole.cast(field.type))
    return pa.table(found, _SCHEMA)


def with_columns(rows: Any, **columns: Any) -> Any:
    """Return rows of a table of records with new values in some columns."""
    return rows_of({name: columns.get(name, rows[name]) for name in COLUMNS})


def coded(column: Any) -> tuple[npt.NDArray[np.int32], list[Any]]:
    """Return the index of each row's value, (n,), and the values, of a dictionary-encoded Arrow column."""
    whole = column.unify_dictionaries().combine_chunks()
    return whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()


def stored_digests(column: Any) -> npt.NDArray[np.bytes_]:
    """Convert an Arrow column of keys or digests to an array, S16 (n,)."""
    if not len(column):
        return np.empty(0, f"S{IDENTITY_BYTES}")
    whole = column.combine_chunks()
    return np.frombuffer(whole.buffers()[1], f"S{IDENTITY_BYTES}", len(whole), whole.offset * IDENTITY_BYTES)


def digest_column(values: npt.NDArray[Any]) -> pa.Array:
    """Convert an array of keys or digests to an Arrow column; the inverse of :func:`stored_digests`."""
    content = pa.py_buffer(np.ascontiguousarray(values).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.itemsize), len(values), [None, content])


def in_shards(rows: Any, shards: ShardTable) -> Any:
    """Return rows with shard names and positions; the shards contain exactly these records in this order."""
    edges, at = np.cumsum([0, *shards.lengths]), np.arange(len(rows))
    which = np.searchsorted(edges, at, side="right") - 1
    files = pa.DictionaryArray.from_arrays(which.astype(np.int32), [shard.file for shard in shards])
    return with_columns(rows, shard=files, position=pa.array(at - edges[which]))


def places(path: Path, split: SplitInfo) -> npt.NDArray[np.integer]:
    """Return the position of each record of a split among all records of the split's shards, integers (records,).

    Raises:
        ArtifactError: the table does not match the split.
    """
    shards = split.every_shard
    firsts = dict(zip((shard.file for shard in shards), np.cumsum([0, *shards.lengths]).tolist(), strict=False))
    rows = RecordTable(path).of_split(split.name, "shard", "position")
    codes, names = coded(rows["shard"])
    missing = [names[code] for code in np.unique(codes).tolist() if names[code] not in firsts]
    if missing:
        raise ArtifactError(
            f"{path} names the shard {missing[0]} of the split {split.name}, which the manifest lacks; convert the "
            "data again"
        )
    if len(rows) != split.records:
        raise ArtifactError(
            f"{path} has {plural(len(rows), 'record')} of the split {split.name} vs {split.records:,} in the manifest; "
            "convert the data again"
        )
    starts = np.array([firsts.get(name, 0) for name in names], np.int64)
    return (starts[codes] + rows["position"].to_numpy()).astype(
        np.uint32 if sum(shards.lengths) < 1 << 32 else np.int64
    )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise an ArtifactError if reading the table fails."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is not a table of records ({error}); convert the data again") from error
