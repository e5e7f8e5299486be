"""``podline lr-find``: which learning rate to train a recipe with."""

from __future__ import annotations

from typing import Any

import click

from podline.commands import display, pages
from podline.commands.options import (
    complete_recipe,
    in_order,
    json_option,
    load_settings,
    recipe_of,
    recipe_options,
    say,
    say_json,
    store_options,
    strategy_option,
)
from podline.commands.stage import fingerprint_option, perform
from podline.progress import Reporter
from podline.recipes.choices import Choices
from podline.stages.table import LR_FIND
from podline.store.opening import open_store
from podline.training.searches import learning_rate_spec


@click.command("lr-find", cls=pages.Command)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.option(
    "--low",
    type=click.FloatRange(0, min_open=True),
    default=1e-5,
    show_default=True,
    help="The rate of the first step.",
)
@click.option(
    "--high",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=10.0,
    show_default=True,
    help="The rate of the last step.",
)
@click.option("--over", type=click.IntRange(20), default=300, show_default=True, help="Steps from low to high.")
@click.option("--run", help="Begin from the newest checkpoint of this run of the recipe, which is only read.")
@in_order(recipe_options, strategy_option, fingerprint_option, store_options)
@json_option
def lr_find(
    recipe: str,
    low: float,
    high: float,
    over: int,
    run: str | None,
    fingerprint: str | None,
    as_json: bool,
    **options: Any,
) -> None:
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
    store = open_store(settings.root)
    with display.shown() as listener:
        spec = learning_rate_spec(
            store,
            recipe_of(recipe),
            Reporter(LR_FIND.name, listener),
            run=run,
            fingerprint=fingerprint,
            choices=Choices(**options),
            low=low,
            high=high,
            steps=over,
            strategy=settings.strategy,
        )
        result = perform(spec, listener, settings)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say(result.lines(store.where))
