"""``podline lr-find``: which learning rate to train a recipe with."""

from __future__ import annotations

from typing import Any

import click

from podline.commands import display, pages
from podline.commands.options import (
    command_line,
    complete_recipe,
    fingerprint_option,
    in_order,
    json_option,
    load_settings,
    recipe_of,
    say,
    say_json,
    store_options,
    strategy_option,
)
from podline.options import Choices, SearchOptions, TrainingGroup
from podline.progress import Reporter
from podline.stages.table import LR_FIND
from podline.store.opening import open_store
from podline.supervision.running import perform
from podline.training.searches import learning_rate_spec


@click.command("lr-find", cls=pages.Command)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@in_order(
    command_line(SearchOptions),
    command_line(TrainingGroup, "model", "batch_size", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
    store_options,
)
@json_option
def lr_find(recipe: str, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """Which learning rate to train a recipe with.

    The rate rises from step to step, and the loss says how far it may go. It trains on a copy of the state, with the
    recipe's data, augmentation and optimizer, until the smoothed loss explodes or the last rate is reached. The
    suggestion is for the peak of the recipe's schedule, with its reasons and a chart. Nothing of any run is changed,
    and the same search is found done.

      podline lr-find cifar10 --root podline-root
      podline lr-find mnist --set optimizer.kind=adam --high 1
      podline lr-find cifar10 --run cifar10-0123456789ab

    Next: `podline train RECIPE --learning-rate` with what it suggests. How to read the chart: docs/learning-rate.md.
    """
    settings = load_settings(options)
    search = {name: options.pop(name) for name in SearchOptions.model_fields}
    store = open_store(settings.root)
    with display.shown() as listener:
        spec = learning_rate_spec(
            store,
            recipe_of(recipe),
            Reporter(LR_FIND.name, listener),
            fingerprint=fingerprint,
            choices=Choices(**options),
            strategy=settings.strategy,
            **dict(SearchOptions(**search)),
        )
        result = perform(spec, listener, settings)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say(result.lines(store.where))
