"""Measured in child processes: the whole conversion job, against one loop over the same raw files."""

from __future__ import annotations

import importlib
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from podline.base.progress import silent
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT

_ROW = 3073
_BLOCK_ROWS = 10_000
# Five files to train on and one to test on, as CIFAR-10 has them.
_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def make_raw_files(source: str, examples: int) -> None:
    """Write noise in CIFAR-10's binary layout: rows of a label byte and 3,072 pixel bytes."""
    random = np.random.default_rng(0)
    Path(source).mkdir()
    edges = np.linspace(0, examples, len(_FILES) + 1).astype(int)
    for name, count in zip(_FILES, np.diff(edges), strict=True):
        with (Path(source) / name).open("wb") as stream:
            for start in range(0, count, _BLOCK_ROWS):
                rows = random.integers(0, 256, (min(_BLOCK_ROWS, count - start), _ROW), np.uint8)
                rows[:, 0] %= 10
                stream.write(rows.data)


def convert_ours(source: str, target: str) -> dict[str, float]:
    """Measure the conversion stage with all that it does: checks, order, statistics, checksums, manifest."""
    importlib.import_module(CONVERT.run_at.partition(":")[0])
    spec = ConvertSpec(root=target, dataset="cifar10", source=source)
    return _measured(source, target, lambda: CONVERT.run(spec, silent()))


def make_data_set(source: str, root: str) -> str:
    """Convert raw files for a benchmark that reads them; return the data set's folder in the store."""
    return CONVERT.run(ConvertSpec(root=root, dataset="cifar10", source=source), silent()).folder


def convert_plain(source: str, target: str) -> dict[str, float]:
    """Measure the loop: read a file, build an Example a row, write it."""
    from benchmarks import plain  # noqa: PLC0415 (only this side needs TensorFlow)

    Path(target).mkdir()
    files = [Path(source) / name for name in _FILES]
    return _measured(source, target, lambda: plain.convert(files, Path(target)))


def _measured(source: str, target: str, convert: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the work, without imports, and the peak memory of this process, imports included.

    The raw files are in the page cache when the clock starts, for either side.
    """
    _read(source)
    started = time.perf_counter()
    convert()
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


def _read(source: str) -> None:
    for name in _FILES:
        with (Path(source) / name).open("rb") as stream:
            while stream.read(1 << 22):
                pass


def peak_bytes() -> int:
    """Return the largest resident set of this process; Linux counts it in KiB, macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
