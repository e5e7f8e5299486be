"""``podline tune``: the learning rate, other values of a recipe, the speed of the input."""

from __future__ import annotations

from typing import Any

import click

from podline.commands import display, pages
from podline.commands.options import (
    answer,
    command_line,
    fingerprint_option,
    in_order,
    json_option,
    load_settings,
    recipe_argument,
    recipe_of,
    store_options,
    strategy_option,
)
from podline.commands.stage import Request, trainer
from podline.inventory.catalogue import dataset_for
from podline.options import Choices, SearchOptions, TrainingGroup, TrialOptions
from podline.progress import Reporter
from podline.search.searching import search, search_spec
from podline.stages.table import INPUT_SPEED, LR_FIND
from podline.stages.tools import InputSpeedSpec
from podline.store.opening import open_store
from podline.supervision.running import perform
from podline.training.searches import learning_rate_spec


@click.group("tune", cls=pages.Group)
def tune() -> None:
    """Find a learning rate or other values, measure the input."""


@tune.command("lr")
@recipe_argument
@in_order(
    command_line(SearchOptions),
    command_line(TrainingGroup, "model", "batch_size", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
    store_options,
)
@json_option
def learning_rate(recipe: str, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """Find the learning rate to train a recipe with.

    The rate rises from step to step, and the loss says how far it may go. It trains on a copy of the state, with the
    recipe's data, augmentation and optimizer, until the smoothed loss explodes or the last rate is reached. The
    suggestion is for the peak of the recipe's schedule, with its reasons and a chart. Nothing of any run is changed,
    and the same search is found done.

      podline tune lr cifar10 --root podline-root
      podline tune lr mnist --set optimizer.kind=adam --high 1
      podline tune lr cifar10 --run cifar10-0123456789ab

    Next: `podline train RECIPE --learning-rate` with what it suggests. docs/how-to/learning-rate.md says how to read
    the chart.
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
    answer(result, lambda: result.lines(store.where), as_json=as_json)


@tune.command("search")
@recipe_argument
@in_order(
    command_line(TrialOptions),
    command_line(TrainingGroup, "model", "batch_size", "learning_rate", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
    store_options,
)
@json_option
def search_values(recipe: str, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """Search for better values of a recipe.

    Each trial is a run of the store, with its entry in the ledger. The first has the recipe's own values; the next ones
    are chosen by what was found so far. Trials are compared by held-out examples (validation_share), never by the test
    split. One that is worse than half of those before it ends early. The same command goes on where it was broken off.

      podline tune search sample --over schedule.learning_rate=log:0.01..1 --over model.width=0.5,1 --trials 10
      podline tune search mnist --over optimizer.kind=sgd,adam --over augmentation.pad=0..4 --minutes 60

    Next: `podline evaluate` with the best run. docs/how-to/search.md says how to read the page.
    """
    settings = load_settings(options)
    given = TrialOptions(**{name: options.pop(name) for name in TrialOptions.model_fields})
    store = open_store(settings.root)
    with display.shown() as listener:
        reporter = Reporter("search", listener)

        train = trainer(store, settings, listener)

        spec = search_spec(
            store,
            Choices(**options).apply(recipe_of(recipe)),
            given.over,
            reporter,
            fingerprint=fingerprint,
            strategy=settings.strategy,
            trials=given.trials,
            minutes=given.minutes,
        )
        result = search(store, spec, train, reporter)
    answer(result, lambda: result.lines(store.where), as_json=as_json)


@tune.command("input")
@recipe_argument
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    default=0.5,
    show_default=True,
    help="For which each stage of the input is measured.",
)
@in_order(command_line(TrainingGroup, "model", "batch_size", "assignments"), fingerprint_option, store_options)
@json_option
def input_speed(recipe: str, seconds: float, fingerprint: str | None, as_json: bool, **options: Any) -> None:
    """Measure a recipe's input, stage by stage, to find the bottleneck.

    Measured on the recipe's converted data set and through the functions that training calls, in about 20 seconds:
    reading, augmentation, making tensors, the way to the device, each by itself; all of them together; the training
    step with a batch at hand; and the share of its time that training with this input waits.

      podline tune input cifar10 --root podline-root
      podline tune input mnist --batch-size 1024 --set augmentation.pad=0 --json

    Rates of other machines say nothing about this one: run it where you train. What to do about a slow stage is in
    docs/how-to/input.md.
    """
    settings = load_settings(options)
    with display.shown() as listener:
        request = Request(recipe, open_store(settings.root), settings, listener)
        chosen = Choices(**options).apply(request.recipe)
        dataset = dataset_for(request.store, chosen, fingerprint, request.reporter(INPUT_SPEED))
        spec = InputSpeedSpec(root=request.store.uri, recipe=chosen, fingerprint=dataset.fingerprint, seconds=seconds)
        speed = perform(spec, listener, settings)
    answer(speed, speed.lines, as_json=as_json)
