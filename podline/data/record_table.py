"""The table of records of a data set that has versions: which record lies where, since which version, until which.

Records that a version has come first, each split's in its order; then those that it has no more. Shards are named as
the manifest names them, versions by their fingerprints. The bytes of a record depend on its key, which is the sha256 of
its image's file, and on its digest, of pixels and targets; of both the first 16 bytes are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.pixels import PixelSums
from podline.documents.manifest import SplitInfo
from podline.documents.shard_table import ShardTable
from podline.errors import ArtifactError

RECORDS = "records.parquet"
"""The table's name in a data set's folder."""
DIGEST_BYTES = 16
COLUMNS = ("split", "key", "digest", "shard", "position", "since", "until", "why")
_TEXTS = tuple(name for name in COLUMNS if name not in ("key", "digest", "position"))
_PIXELS = b"pixels"
_AT_ONCE = 1 << 17

Ids = npt.NDArray[np.int64]


class RecordTable(NamedTuple):
    """A table of records.

    Attributes:
        rows: a pyarrow.Table of :data:`COLUMNS`; ``until`` and ``why`` are null where the version has the record.
        pixels: split → the sums of its pixels.
    """

    rows: Any
    pixels: Mapping[str, PixelSums]

    def of_split(self, split: str) -> Any:
        """Return the rows of the records that a split has, in its order."""
        import pyarrow.compute as pc  # noqa: PLC0415 (data sets without versions need none)

        return self.rows.filter((pc.field("split") == split) & pc.field("until").is_null())

    def write(self, path: Path) -> None:
        """Write the table."""
        import pyarrow.parquet as pq  # noqa: PLC0415 (likewise)

        sums = {split: sums.model_dump(mode="json") for split, sums in self.pixels.items()}
        pq.write_table(
            self.rows.replace_schema_metadata({_PIXELS: json.dumps(sums).encode()}),
            path,
            compression="zstd",
            use_dictionary=_TEXTS,  # pyright: ignore[reportArgumentType] (its stub)
            column_encoding={"position": "DELTA_BINARY_PACKED", "key": "PLAIN", "digest": "PLAIN"},
            write_statistics=False,
        )


def rows_of(columns: Mapping[str, Any]) -> Any:
    """Return columns as rows of a table of records; those that are not given are null."""
    import pyarrow as pa  # noqa: PLC0415 (likewise)

    count = len(next(iter(columns.values()), ()))
    types = dict.fromkeys(COLUMNS, pa.string()) | dict.fromkeys(("key", "digest"), pa.binary(DIGEST_BYTES))
    schema = pa.schema(types | {"position": pa.int64()})
    return pa.table([columns.get(name, pa.nulls(count, schema.field(name).type)) for name in COLUMNS], schema=schema)


def with_columns(rows: Any, **columns: Any) -> Any:
    """Return rows of a table of records with other values in some columns."""
    return rows_of({name: columns.get(name, rows[name]) for name in COLUMNS})


def stored_digests(column: Any) -> npt.NDArray[np.bytes_]:
    """Return a column of keys or digests, (n,)."""
    if not len(column):
        return np.empty(0, f"S{DIGEST_BYTES}")
    whole = column.combine_chunks()
    return np.frombuffer(whole.buffers()[1], f"S{DIGEST_BYTES}", len(whole), whole.offset * DIGEST_BYTES)


def in_shards(rows: Any, shards: ShardTable) -> Any:
    """Return rows of a table of records with the places that they have in shards, one after the other."""
    import pyarrow as pa  # noqa: PLC0415 (likewise)

    files = pa.array([shard.file for shard in shards]).take(pa.array(np.repeat(np.arange(len(shards)), shards.lengths)))
    starts = np.repeat(np.cumsum([0, *shards.lengths])[:-1], shards.lengths)
    return with_columns(rows, shard=files, position=pa.array(np.arange(len(rows)) - starts))


def read_records(path: Path) -> RecordTable:
    """Return the table that :meth:`RecordTable.write` wrote.

    Raises:
        ArtifactError: it is none.
    """
    import pyarrow as pa  # noqa: PLC0415 (likewise)
    import pyarrow.parquet as pq  # noqa: PLC0415 (likewise)

    try:
        rows = pq.read_table(path)
        sums = json.loads(rows.schema.metadata[_PIXELS])
        pixels = {split: PixelSums.model_validate(one) for split, one in sums.items()}
        return RecordTable(rows.select(COLUMNS).replace_schema_metadata(), pixels)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def places(path: Path, split: SplitInfo) -> Ids:
    """Return where each record of a split lies among all records of its shards, int64 (records,).

    The table is read some rows at a time.

    Raises:
        ArtifactError: the table is not that of the split.
    """
    shards = split.every_shard
    firsts = dict(zip((shard.file for shard in shards), np.cumsum([0, *shards.lengths]).tolist(), strict=False))
    found, count, missing = np.zeros(split.records, np.int64), 0, dict[str, None]()
    for rows in _live_rows(path, split.name):
        of_rows = rows["shard"].dictionary_encode()
        names = of_rows.dictionary.to_pylist()
        missing |= dict.fromkeys(name for name in names if name not in firsts)
        starts = np.array([firsts.get(name, 0) for name in names], np.int64)
        some = starts[of_rows.indices.to_numpy(zero_copy_only=False)] + rows["position"].to_numpy()
        found[count : count + len(some)] = some[: max(0, len(found) - count)]
        count += len(some)
    if missing or count != split.records:
        raise ArtifactError(
            f"{path} has {count} records of the split {split.name} vs {split.records} in the manifest"
            f"{f', and the shard {next(iter(missing))}, which is not there' if missing else ''}; convert the data again"
        )
    return found


def _live_rows(path: Path, split: str) -> Iterator[Any]:
    """Yield shards and positions of a split's records, in its order, some at a time.

    Raises:
        ArtifactError: the file is no table of records.
    """
    import pyarrow as pa  # noqa: PLC0415 (likewise)
    import pyarrow.compute as pc  # noqa: PLC0415 (likewise)
    import pyarrow.parquet as pq  # noqa: PLC0415 (likewise)

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_AT_ONCE, columns=["split", "shard", "position", "until"]):
                yield batch.filter((pc.field("split") == split) & pc.field("until").is_null())
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ArtifactError:
    return ArtifactError(f"{path} is not a table of records ({error}); convert the data again")
