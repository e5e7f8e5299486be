"""Versions of a simulated data set: the difference to the next one, the order of its records, and where they lie.

    python -m benchmarks.versions 100000000

One split of records with random keys; one in a hundred is new. Prints a row of RESULTS.md for each step, with the peak
of the process's memory until then.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from podline.data.images.opening import Identities
from podline.data.order import TrainingOrder
from podline.data.pixels import PixelSums
from podline.data.record_table import (
    DIGEST_BYTES,
    RECORDS,
    RecordTable,
    in_shards,
    places,
    rows_of,
    stored_digests,
    write_records,
)
from podline.datasets.draft import Written
from podline.datasets.growth import growth_of
from podline.datasets.version_changes import VersionRecords, version_changes
from podline.documents.manifest import SplitInfo
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.store.folder import FolderStore

_PART, _BATCH, _BATCHES = 1_000_000, 1024, 200
_PIXELS = PixelSums(count=1, sums=(0, 0, 0), squares=(0, 0, 0))
Result = TypeVar("Result")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder), given.records)


def _measure(folder: Path, records: int) -> None:
    store, random = FolderStore(folder), np.random.default_rng(0)
    path = store.local(f"base/{RECORDS}")
    path.parent.mkdir()
    info = SplitInfo(
        name="train", records=records, shards=_shards(records), class_counts=(records,), mean=(0.0,), std=(0.0,)
    )
    _write(path, info.shards, random)
    _address(path, info)
    base = SimpleNamespace(folder="base", fingerprint=16 * "0", split=lambda _: info)
    new = np.sort(random.integers(1, 2**63, (records // 100, 2)).view(f"S{DIGEST_BYTES}").ravel())
    source: Any = SimpleNamespace(
        identities=lambda: {"train": _with(new, path)}, class_names=("cat",), kind="classification"
    )
    growth = _timed("the difference, 1 % new", lambda: growth_of(store, source, 16 * "1", cast(Any, base)))
    written = {"train": Written(_shards(len(new)), np.array([len(new)]), _PIXELS)}
    _, sums = growth.infos(written)
    after = store.local(f"after/{RECORDS}")
    after.parent.mkdir()
    _timed("writing the table of the next version", lambda: write_records(after, growth.rows(written), sums))
    sizes = {"base": records, "after": records + len(new)}
    versions = [VersionRecords(store, cast(Any, _manifest(name, size))) for name, size in sizes.items()]
    _timed("what changed between two versions", lambda: version_changes(*versions))


def _manifest(folder: str, records: int) -> SimpleNamespace:
    splits = [SimpleNamespace(name="train", records=records)]
    return SimpleNamespace(folder=folder, splits=splits, fields=(), records=True)


def _address(path: Path, info: SplitInfo) -> None:
    order = TrainingOrder(info.records, _BATCH, seed=0)
    at = _timed("where each record lies", lambda: places(path, info))
    steps = range(0, order.steps_per_epoch, max(1, order.steps_per_epoch // _BATCHES))
    ids = _timed("the order of a batch of 1,024", lambda: [order.batch(step)[1] for step in steps], len(steps))
    _timed("where the records of a batch lie", lambda: [at[some] for some in ids], len(steps))


def _with(new: npt.NDArray[np.bytes_], path: Path) -> Iterator[Identities]:
    """Yield the records of a table and new ones among them, some at a time."""
    first = 0
    for rows in RecordTable(path).of_split("train", "key", "digest"):
        old = Identities(*map(stored_digests, rows.columns))
        end = int(np.searchsorted(new, old.keys[-1]))
        both = Identities(*(np.concatenate([column, new[first:end]]) for column in old))
        order, first = np.argsort(both.keys, kind="stable"), end
        yield Identities(*(column[order] for column in both))
    yield Identities(new[first:], new[first:])


def _shards(records: int) -> ShardTable:
    sizes = [_PART] * (records // _PART) + [records % _PART] * (records % _PART > 0)
    names = (f"images-train.tfrecord-{number:05}-of-{len(sizes):05}" for number in range(len(sizes)))
    return ShardTable.of(
        ShardInfo(file=name, bytes=size, sha256=64 * "0", records=size) for name, size in zip(names, sizes, strict=True)
    )


def _write(path: Path, shards: ShardTable, random: np.random.Generator) -> None:
    """Write a table of records, a shard after the other, whose keys ascend."""
    writer = None
    for number, shard in enumerate(shards):
        heads = np.sort(random.integers(0, 2**63 // len(shards), shard.records, np.uint64))
        keys = np.empty((shard.records, 2), ">u8")
        keys[:, 0], keys[:, 1] = heads + np.uint64(number * (2**63 // len(shards))), random.integers(1, 2**63)
        digests = random.integers(1, 2**63, (shard.records, 2), np.uint64)
        columns = {name: _fixed(values) for name, values in (("key", keys), ("digest", digests))}
        texts = {name: pa.repeat(text, shard.records) for name, text in (("split", "train"), ("since", 16 * "0"))}
        rows = in_shards(rows_of({**texts, **columns}), ShardTable.of([shard]))
        sums = f'{{"train": {_PIXELS.model_dump_json()}}}'.encode()
        writer = writer or pq.ParquetWriter(
            path, rows.schema.with_metadata({b"pixels": sums}), compression="zstd", write_statistics=False
        )
        writer.write_table(rows.replace_schema_metadata({b"pixels": sums}))
    if writer:
        writer.close()


def _fixed(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(DIGEST_BYTES), len(values), [None, pa.py_buffer(values.tobytes())]
    )


def _timed(what: str, work: Callable[[], Result], count: int = 1) -> Result:
    started = time.perf_counter()
    result = work()
    seconds = (time.perf_counter() - started) / count
    took = f"{seconds:.1f} s" if seconds > 1 else f"{1000 * seconds:.3f} ms"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    sys.stdout.write(f"| {what} | {took} | {peak:.2f} GB |\n")
    sys.stdout.flush()
    return result


if __name__ == "__main__":
    main()
