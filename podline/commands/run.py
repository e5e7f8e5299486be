"""``podline run``: runs the whole pipeline as a Prefect flow in this process."""

from __future__ import annotations

from typing import Any

import click

from podline.base import entry_points
from podline.commands import display, pages
from podline.commands.options import (
    absolute,
    answer,
    command_line,
    in_order,
    json_option,
    load_settings,
    recipe_argument,
    store_options,
)
from podline.documents.metric import Metric
from podline.ledger.requests import recipe_of
from podline.recipes.measures import measure_named, metric_text
from podline.recipes.registry import FILE_SUFFIX
from podline.stages.options import DataGroup, MachineGroup, RunOptions, TrainingGroup
from podline.store.opening import open_store

# A name, imported when needed, because the library must not import packages of a higher layer.
_FLOW = "podline.tasks.embedded:run_training"


@click.command("run", cls=pages.Command)
@recipe_argument
@in_order(
    command_line(RunOptions, "source"),
    store_options,
    command_line(RunOptions, "minutes", "epochs", "promote", "start_from"),
    *(command_line(group) for group in (TrainingGroup, DataGroup)),
    command_line(MachineGroup, "strategy", "engine", "workers", "beam_options"),
)
@json_option
def run(recipe: str, as_json: bool, **options: Any) -> None:
    """Convert, validate, train, evaluate and report, as a Prefect flow on this machine.

    RECIPE is cifar10, cifar10-small, -medium or -large, cifar100, mnist, sample or coco_pose; images, labels or
    keypoints for your own data; or the path of a Python file with a recipe (see docs/how-to/recipe.md). Recipes for
    the data sets sample and coco can run without --source; they then train on synthetic images.

      podline run sample
      podline run images --source photos --name flowers --root podline-root
      podline run coco_pose --source coco --root podline-root
      podline run keypoints --source mice --root podline-root
      podline run cifar10 --source cifar-10-batches-py --root podline-root
      podline run mnist --source mnist --minutes 5 --json > result.json
      podline run sample --start-from evaluate
      podline run sample --promote --set promotion.seeds=2

    If you repeat a command, it verifies and re-uses finished stages, and resumes an interrupted stage. All files,
    including Prefect's database, are under the root. Next: open the report, whose path is in the last line.
    """
    recipe_of(recipe)
    recipe = absolute(recipe) if recipe.endswith(FILE_SUFFIX) else recipe
    machine = load_settings(options)
    machine = machine.model_copy(update={"root": open_store(machine.root).uri})
    where = {name: getattr(machine, name) for name in ("root", "engine", "workers", "strategy")}
    given = {name: value for name, value in options.items() if value is not None} | {"recipe": recipe, **where}
    with display.shown() as listener:
        ended = entry_points.load(_FLOW)(given, machine, listener)
    answer(ended, lambda: _page(ended), as_json=as_json)


def _page(ended: dict[str, Any]) -> list[str]:
    measure = ended["measure"]
    figure = Metric.model_validate(ended["metrics"][measure])
    reused = [name for name, stage in ended["stages"].items() if stage["reused"]]
    promotion = ended["promotion"]
    return [
        f"{measure_named(measure).label:10}{metric_text(measure, figure)}",
        f"run       {ended['run']}",
        f"re-used   {', '.join(reused) or 'nothing'}",
        *([f"promotion {promotion['verdict']}"] if promotion else []),
        f"report    {ended['report']}",
    ]
