"""``podline benchmark``: ours beside the plain way, both measured on this machine, now."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import click

from podline.commands import display, pages
from podline.commands.options import json_option, say, say_json

_STAGE = "benchmark"


@click.command(_STAGE, cls=pages.Command)
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@click.option(
    "--examples", type=int, help="Images of the whole conversion job.  [default: 500,000, about 5 GB of disk]"
)
@click.option(
    "--work", type=click.Path(path_type=Path), help="Where temporary files go.  [default: the system's folder]"
)
@click.option("--quick", is_flag=True, help="Sizes so small that the figures mean nothing: to see that it works.")
@json_option
def benchmark(names: tuple[str, ...], examples: int | None, work: Path | None, quick: bool, as_json: bool) -> None:
    """Our way beside the plain way, measured in turns in one run; a ratio above 1 means that ours is better.

      podline benchmark
      podline benchmark shuffled-batches train-step
      podline benchmark convert-job --examples 50000 --json

    Without names, all of them: writing shards, the whole conversion, shuffled batches, training steps, labels, pixels.
    """
    # By name: what it measures imports what the rest of the command line does without.
    running = importlib.import_module("podline.benchmark.running")
    with display.shown() as listener:
        started = time.monotonic()
        listener({"event": "start", "stage": _STAGE})
        rows = running.run(names or None, listener, examples=examples, quick=quick, work=work)
        listener({"event": "result", "stage": _STAGE, "result": {"seconds": time.monotonic() - started}})
    if as_json:
        say_json([row.model_dump(mode="json") for row in rows])
        return
    width = max(len(row.name) for row in rows)
    lines = [f"{'name':{width}} {'ours':>12} {'plain way':>12} {'ratio':>7}  unit"]
    for row in rows:
        lines.append(f"{row.name:{width}} {row.ours:>12,.4g} {row.other:>12,.4g} {row.ratio:>7.2f}  {row.unit}")
        lines.append(f"{'':{width}} {row.note}")
    say(lines)
