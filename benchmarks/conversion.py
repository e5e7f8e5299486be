"""Conversions in child processes: Podline's conversion stage, and a loop over CIFAR-10's raw files."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import seconds_of
from podline.base.progress import silent
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT

_ROW = 3073
_BLOCK_ROWS = 10_000
# Five training files and a test file, as in CIFAR-10.
_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")


def make_source(source: str, images: int) -> None:
    """Write noise in CIFAR-10's binary layout: rows of a label byte and 3,072 pixel bytes."""
    random = np.random.default_rng(0)
    Path(source).mkdir()
    edges = np.linspace(0, images, len(_FILES) + 1).astype(int)
    for name, count in zip(_FILES, np.diff(edges), strict=True):
        with (Path(source) / name).open("wb") as stream:
            for start in range(0, count, _BLOCK_ROWS):
                rows = random.integers(0, 256, (min(_BLOCK_ROWS, count - start), _ROW), np.uint8)
                rows[:, 0] %= 10
                stream.write(rows.data)


def make_data_set(dataset: str, source: str, root: str) -> str:
    """Convert a source; return the data set's folder in the store."""
    return CONVERT.run(ConvertSpec(root=root, dataset=dataset, source=source), silent()).folder


def convert(dataset: str, source: str, target: str) -> dict[str, float]:
    """Measure Podline's conversion stage, with planning, checks, statistics and manifest; see :func:`measured`."""
    importlib.import_module(CONVERT.run_at.partition(":")[0])
    gc.freeze()  # as in a stage's process
    return measured(source, target, lambda: make_data_set(dataset, source, target))


def convert_plain(source: str, target: str) -> dict[str, float]:
    """Measure a loop that reads the raw files, and builds and writes an Example for each row; see :func:`measured`."""
    from benchmarks import plain  # noqa: PLC0415 (only this side needs TensorFlow)

    Path(target).mkdir()
    files = [Path(source) / name for name in _FILES]
    return measured(source, target, lambda: plain.convert(files, Path(target)))


def measured(source: str, target: str, work: Callable[[], object]) -> dict[str, float]:
    """Measure a conversion whose raw files are in the page cache; delete its target.

    Returns:
        ``seconds``; ``peak_bytes``: the largest resident set of this process, including imported libraries.
    """
    for path in Path(source).rglob("*.*"):
        with path.open("rb") as stream, Path(os.devnull).open("wb") as nowhere:
            shutil.copyfileobj(stream, nowhere, 1 << 22)  # in pieces, which do not raise the peak
    seconds = seconds_of(work)
    shutil.rmtree(target, ignore_errors=True)
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Return the largest resident set of this process; Linux counts it in KiB, macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
