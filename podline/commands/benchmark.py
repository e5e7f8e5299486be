"""``podline benchmark``: compares the speed of Podline and of plain code on this machine; needs a checkout."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

import podline
from podline.base.errors import SettingsError
from podline.base.progress import report_work
from podline.commands import display, pages
from podline.commands.options import Whole, answer, json_option

_STAGE = "benchmark"


@click.command(_STAGE, cls=pages.Command)
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@click.option(
    "--examples", type=Whole(1), help="Number of images for convert-job.  [default: 500,000, about 5 GB of disk]"
)
@click.option(
    "--work", type=click.Path(path_type=Path), help="The folder for temporary files.  [default: the system's]"
)
@click.option("--quick", is_flag=True, help="Use tiny sizes to test the benchmarks; the figures mean nothing.")
@json_option
def benchmark(names: tuple[str, ...], examples: int | None, work: Path | None, quick: bool, as_json: bool) -> None:
    """Compare the speed of Podline and of plain code on this machine; a ratio above 1 means that Podline is better.

      podline benchmark
      podline benchmark shuffled-batches train-step
      podline benchmark convert-job --examples 50000 --json

    The two are measured in turn. Without NAMES the command runs write-shard, convert-job, convert-coco,
    convert-folders, pose-input, shuffled-batches, plans, train-step and first-step. Two benchmarks run only if named:
    readers, which installs grain and WebDataset into a separate environment, and channels-first, which needs a GPU.
    """
    running = _running()
    with display.shown() as listener, report_work(_STAGE, listener):
        rows = running.run(names or None, listener, examples=examples, quick=quick, work=work)
    answer([row.model_dump(mode="json") for row in rows], lambda: _table(rows), as_json=as_json)


def _running() -> Any:
    """Import ``benchmarks.running`` from the checkout.

    Raises:
        SettingsError: Podline is not installed from a checkout.
    """
    checkout = Path(podline.__file__).resolve().parents[1]
    if not (checkout / "benchmarks" / "running.py").is_file():
        raise SettingsError(
            f"{checkout / 'benchmarks'} does not exist, because the benchmarks are only in a checkout of Podline's "
            "repository; run the command there, or measure your own input with `podline tune input`"
        )
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    return importlib.import_module("benchmarks.running")


def _table(rows: list[Any]) -> list[str]:
    width = max(len(row.name) for row in rows)
    lines = [f"{'name':{width}} {'ours':>12} {'plain way':>12} {'ratio':>7}  unit"]
    for row in rows:
        lines.append(f"{row.name:{width}} {row.ours:>12,.4g} {row.other:>12,.4g} {row.ratio:>7.2f}  {row.unit}")
        lines.append(f"{'':{width}} {row.note}")
    return lines
