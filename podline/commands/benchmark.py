"""``podline benchmark``: ours beside the plain way, and a recipe's input stage by stage, both measured here and now."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import podline
from podline.commands import display, pages
from podline.commands.options import (
    complete_recipe,
    fingerprint_option,
    in_order,
    json_option,
    load_settings,
    recipe_options,
    say,
    say_json,
    store_options,
)
from podline.commands.stage import Request, perform
from podline.errors import SettingsError
from podline.inventory.catalogue import dataset_for, manifest_of
from podline.options import Choices
from podline.progress import Listener
from podline.stages.ceiling import CeilingSpec
from podline.stages.table import CEILING, INPUT_SPEED
from podline.stages.tools import InputSpeedSpec
from podline.store.opening import open_store

_STAGE = "benchmark"
_COMPARE = "compare"


class _Benchmarks(pages.Group):
    """A group that takes the names of comparisons as well: ``podline benchmark labels pixels``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What begins with no command of the group is for ``compare``."""
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_COMPARE, *args]
        return super().parse_args(ctx, args)


@click.group(_STAGE, cls=_Benchmarks)
def benchmark() -> None:
    """Our way beside the plain way, and the stages of a recipe's input, measured here and now.

      podline benchmark
      podline benchmark shuffled-batches train-step
      podline benchmark input cifar10 --root podline-root

    Without a command, `compare`: `podline benchmark labels` is `podline benchmark compare labels`.
    """


@benchmark.command(_COMPARE)
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@click.option(
    "--examples", type=int, help="Images of the whole conversion job.  [default: 500,000, about 5 GB of disk]"
)
@click.option(
    "--work", type=click.Path(path_type=Path), help="Where temporary files go.  [default: the system's folder]"
)
@click.option("--quick", is_flag=True, help="Sizes so small that the figures mean nothing: to see that it works.")
@json_option
def compare(names: tuple[str, ...], examples: int | None, work: Path | None, quick: bool, as_json: bool) -> None:
    """Our way beside the plain way, measured in turns in one run; a ratio above 1 means that ours is better.

      podline benchmark compare
      podline benchmark compare shuffled-batches train-step
      podline benchmark compare convert-job --examples 50000 --json

    Without names, all of them: keep-files, write-shard, convert-job, convert-coco, pose-input, shuffled-batches,
    train-step, precision, first-step, diagnosis, strategies, flow, labels, pixels.
    """
    running = _measuring("running")
    _show(lambda listener: running.run(names or None, listener, examples=examples, quick=quick, work=work), as_json)


def _measuring(module: str) -> Any:
    """A module of ``benchmarks/``, which is no part of the package.

    Raises:
        SettingsError: this is no checkout.
    """
    checkout = Path(podline.__file__).resolve().parents[1]
    if not (checkout / "benchmarks" / f"{module}.py").is_file():
        raise SettingsError(
            f"{checkout / 'benchmarks'} is not there: what measures Podline beside the plain way is in its "
            "repository and not in the installed package; `podline benchmark input` measures your own input"
        )
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    return importlib.import_module(f"benchmarks.{module}")


def _show(measured: Callable[[Listener], list[Any]], as_json: bool) -> None:
    """Measures, and shows the rows, each a ``benchmarks.row.BenchmarkRow``."""
    with display.shown() as listener:
        started = time.monotonic()
        listener({"event": "start", "stage": _STAGE})
        rows = measured(listener)
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


@benchmark.command("input")
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    default=0.5,
    show_default=True,
    help="For which each stage of the input is measured.",
)
@in_order(recipe_options, fingerprint_option, store_options)
@json_option
def benchmark_input(recipe: str, seconds: float, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """How fast a recipe's input is, stage by stage, which one is the bottleneck, and whether it feeds the model.

    Measured on the recipe's converted data set and through the functions that training calls, in about 20 seconds:
    reading, augmentation, making tensors, the way to the device, each by itself; all of them together; the training
    step with a batch at hand; and the share of its time that training with this input waits.

      podline benchmark input cifar10 --root podline-root
      podline benchmark input mnist --batch-size 1024 --set augmentation.pad=0 --json

    Rates of other machines say nothing about this one: run it where you train. What to do about a slow stage is in
    docs/input.md.
    """
    settings = load_settings(options)
    with display.shown() as listener:
        request = Request(recipe, open_store(settings.root), settings, listener)
        chosen = Choices(**options).apply(request.recipe)
        dataset = dataset_for(request.store, chosen, fingerprint, request.reporter(INPUT_SPEED))
        spec = InputSpeedSpec(root=request.store.uri, recipe=chosen, fingerprint=dataset.fingerprint, seconds=seconds)
        speed = perform(spec, listener, settings)
    if as_json:
        say_json(speed.model_dump(mode="json"))
    else:
        say(speed.lines())


@benchmark.command("store")
@click.option(
    "--work", type=click.Path(path_type=Path), help="Where temporary files go.  [default: the system's folder]"
)
@click.option("--quick", is_flag=True, help="Sizes so small that the figures mean nothing: to see that it works.")
@store_options
@json_option
def benchmark_store(work: Path | None, quick: bool, as_json: bool, **options: Any) -> None:
    """A bucket as the store beside a bare download of the same objects: staging and memory.

    A data set of 600 MB is made under a prefix of its own below the root, and deleted in the end. Read it so:
    store-staging: 1 is as fast as the bare download; store-memory: 1 is memory that does not grow with an object.

      podline benchmark store --root gs://my-bucket/podline

    STORAGE_EMULATOR_HOST leads it to an emulator. Measure where you train: the network is most of it.
    """
    running = _measuring("store")
    root = load_settings(options).root
    _show(lambda listener: running.run_store(root, listener, quick=quick, work=work), as_json)


@benchmark.command("ceiling")
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.option(
    "--truth", type=click.Path(path_type=Path), help="COCO annotations in place of the recipe's converted data set."
)
@in_order(recipe_options, fingerprint_option, store_options)
@json_option
def benchmark_ceiling(recipe: str, truth: Path | None, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """The best that a pose recipe's decoder could do: targets drawn from the truth, decoded again, by size.

    Everybody with at least 5 labelled joints and 32×32 pixels of area at the network's input counts. What is missing
    from 1 is lost in the maps and in the decoder, not by training; the table says to what. No images are needed.

      podline benchmark ceiling coco_pose --root podline-root
      podline benchmark ceiling coco_pose --truth annotations/person_keypoints_val2017.json --set pose.side=368
    """
    settings = load_settings(options)
    with display.shown() as listener:
        request = Request(recipe, open_store(settings.root), settings, listener)
        chosen = Choices(**options).apply(request.recipe)
        poses = chosen.poses
        if truth is None:
            dataset = dataset_for(request.store, chosen, fingerprint, request.reporter(CEILING))
            splits = manifest_of(request.store, dataset).splits
            truths = [request.store.local(f"{dataset.folder}/{split.truth.file}") for split in splits if split.truth]
        else:
            truths = [truth]
        spec = CeilingSpec(
            root=request.store.uri,
            truths=tuple(map(str, truths)),
            side=poses.side,
            targets=poses.targets,
            decoding=poses.decoding,
        )
        found = perform(spec, listener, settings)
    if as_json:
        say_json(found.model_dump(mode="json"))
    else:
        say(found.lines())
