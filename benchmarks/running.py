"""Runs benchmarks by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.catalogue import BENCHMARKS, QUICK, Sizes
from benchmarks.row import BenchmarkRow
from podline.base.errors import SettingsError
from podline.base.figures import rate
from podline.base.progress import Listener, Reporter
from podline.settings.machine import nearest
from podline.store.contract import explained


def run(
    names: Sequence[str] | None,
    listener: Listener,
    *,
    examples: int | None = None,
    quick: bool = False,
    work: Path | None = None,
) -> list[BenchmarkRow]:
    """Run benchmarks; return their rows.

    Args:
        names: names in :data:`~benchmarks.catalogue.BENCHMARKS`; None for all except those that run ``by_name``.
        listener: receives progress, and each row when it is measured.
        examples: number of CIFAR-sized images of ``convert-job``, 500,000 by default; each needs about 10 kB of disk.
        quick: use tiny sizes, to test the benchmarks; the figures mean nothing.
        work: an existing folder for temporary files, which are removed at the end; None for the system's folder.

    Raises:
        SettingsError: a benchmark does not exist, or lacks a GPU or a package index; or ``examples`` is below 6.
        StoreError: ``work`` cannot be written.
        PodlineError: a measurement failed.
    """
    chosen = [name for name in BENCHMARKS if not BENCHMARKS[name].by_name] if names is None else list(names)
    for name in chosen:
        if name not in BENCHMARKS:
            raise SettingsError(f"there is no benchmark {name!r}; {nearest(name, BENCHMARKS)}")
    sizes = QUICK if quick else Sizes()
    if examples is not None:
        if examples < 6:
            raise SettingsError(f"got examples={examples}, expected at least 6: each of six raw files needs an image")
        sizes = sizes.model_copy(update={"examples": examples})
    reporter, rows = Reporter("benchmark", listener), []
    for done, name in enumerate(chosen):
        reporter.progress(done, len(chosen), "benchmarks")
        reporter.log(f"{name}: {BENCHMARKS[name].about}")
        with explained("write to", work or "the temporary folder"):
            folder = TemporaryDirectory(prefix="podline-benchmark-", dir=work)
        with folder as path:
            found = BENCHMARKS[name].rows(sizes, Path(path))
        for row in found:
            reporter.log(f"{row.name}: {rate(row.ours)} vs {rate(row.other)} {row.unit}, ratio {row.ratio:.2f}")
        rows += found
    reporter.progress(len(chosen), len(chosen), "benchmarks")
    return rows
