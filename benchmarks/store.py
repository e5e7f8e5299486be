"""A bucket as the store, beside the plain way: staging, the first batch, memory.

What is measured is made under a prefix of its own below the given root, and deleted in the end.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.catalogue import QUICK, Sizes, alternately
from benchmarks.child import measure
from benchmarks.row import BenchmarkRow, cost_row, rate_row
from podline.errors import SettingsError
from podline.figures import rate
from podline.progress import Listener, Reporter
from podline.settings import variable_of
from podline.store.contract import BUCKET_SCHEME, explained
from podline.store.opening import open_store

_STAGING = "benchmarks.staging"
_LARGER = 8  # times, of the object whose memory is looked at


def run_store(root: str, listener: Listener, *, quick: bool = False, work: Path | None = None) -> list[BenchmarkRow]:
    """Measures the store at ``gs://bucket/prefix``.

    Args:
        root: where a prefix of its own is made for the time being.
        listener: told of progress, and of each row as it is known.
        quick: sizes so small that the figures mean nothing: to see that everything works.
        work: an existing folder for temporary files, which are removed in the end; None is the system's own.

    Raises:
        SettingsError: the root is no bucket.
        StoreError: the bucket or ``work`` cannot be written to.
        PodlineError: a measurement failed.
    """
    if not root.startswith(BUCKET_SCHEME):
        raise SettingsError(f"--root {root}: a folder is read in place; give gs://bucket/prefix to measure")
    place = f"{root.rstrip('/')}/benchmark-{uuid.uuid4().hex[:12]}"
    reporter, sizes = Reporter("benchmark", listener), QUICK if quick else Sizes()
    with explained("write to", work or "the temporary folder"):
        folder = TemporaryDirectory(prefix="podline-benchmark-", dir=work)
    with folder as path:
        try:
            rows = _Measurements(place, Path(path), sizes, reporter).rows()
        finally:
            store = open_store(place)
            for name in store.list():
                store.delete(name)
    for row in rows:
        reporter.log(f"{row.name}: {rate(row.ours)} vs {rate(row.other)} {row.unit}, ratio {row.ratio:.2f}")
    return rows


class _Measurements:
    """Of one bucket; every child process has a cache of its own, which is empty."""

    def __init__(self, root: str, work: Path, sizes: Sizes, reporter: Reporter) -> None:
        self._root, self._work, self._sizes, self._reporter = root, work, sizes, reporter
        self._numbers = itertools.count()

    def rows(self) -> list[BenchmarkRow]:
        """All of them."""
        examples, shard_bytes = self._sizes.store_examples, self._sizes.store_shard_bytes
        source = str(self._work / "raw")
        self._reporter.log(f"making a data set of {examples:,} images in {self._root}")
        measure(self._work, "benchmarks.conversion:make_raw_files", source=source, examples=examples)
        folder = self._measure("make_data_set", source=source, shard_bytes=shard_bytes)
        shards = [*open_store(self._root).listing(folder)]
        total = sum(found.bytes for found in shards if ".tfrecord-" in found.name)
        count = sum(".tfrecord-" in found.name for found in shards)
        self._reporter.log(f"staging {count} shards of {total / 1e6:,.0f} MB in all")
        ours, other = alternately(
            lambda: self._measure("stage", folder=folder),
            lambda: self._measure("download", folder=folder),
            self._sizes.long_repetitions,
        )
        size = self._sizes.store_object_bytes
        self._reporter.log(f"memory, with an object of {size / 1e6:,.0f} MB and one {_LARGER} times as large")
        small, large = ([self._measure("there_and_back", size=size * n, work=str(self._work))] for n in (1, _LARGER))
        objects = f"{count} shards of {total / 1e6:,.0f} MB in all"
        return [
            rate_row(
                "store-staging",
                count=total // 1_000_000,
                ours=ours,
                other=other,
                unit="MB/s",
                note=f"{objects}, into the cache; google-cloud-storage's own download, as many at once; both checked",
            ),
            cost_row(
                "store-memory",
                ours=large,
                other=small,
                unit="MB",
                note=f"peak memory of a process that publishes and stages {size * _LARGER / 1e6:,.0f} MB; "
                f"{size / 1e6:,.0f} MB",
            ),
        ]

    def _measure(self, function: str, **arguments: Any) -> Any:
        cache = self._work / f"cache-{next(self._numbers)}"
        variables = {variable_of("store.cache"): str(cache)}
        try:
            return measure(self._work, f"{_STAGING}:{function}", variables, root=self._root, **arguments)
        finally:
            shutil.rmtree(cache, ignore_errors=True)
