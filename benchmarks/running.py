"""Running benchmarks by name."""

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
    """Measures.

    Args:
        names: which of :data:`~benchmarks.catalogue.BENCHMARKS`, in this order; None is all but those of ``by_name``.
        listener: told of progress, and of each row as it is known.
        examples: CIFAR-sized images of ``convert-job``, 500,000 by default; it needs about 10 kB of disk for each.
        quick: sizes so small that the figures mean nothing: to see that everything works.
        work: an existing folder for temporary files, which are removed in the end; None is the system's own.

    Raises:
        SettingsError: there is no such benchmark, too few examples, or no GPU or package index for one that needs it.
        StoreError: ``work`` cannot be written to.
        PodlineError: a measurement failed.
    """
    chosen = [name for name in BENCHMARKS if not BENCHMARKS[name].by_name] if names is None else list(names)
    for name in chosen:
        if name not in BENCHMARKS:
            raise SettingsError(f"there is no benchmark {name!r}; {nearest(name, BENCHMARKS)}")
    sizes = QUICK if quick else Sizes()
    if examples is not None:
        if examples < 6:
            raise SettingsError(f"examples={examples}: the six raw files need at least one image each")
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
