"""``podline tune``: searches a learning rate or other values of a recipe, and measures the input's speed."""

from __future__ import annotations

from typing import Any

import click

from podline.base.progress import Reporter
from podline.commands import display, pages
from podline.commands.options import (
    Number,
    answer,
    command_line,
    fingerprint_option,
    in_order,
    json_option,
    load_settings,
    recipe_argument,
    store_options,
    strategy_option,
)
from podline.commands.stage_command import stage_command
from podline.ledger.inventory.catalogue import dataset_for
from podline.ledger.requests import Request
from podline.search.searching import search, search_spec
from podline.stages.options import Choices, SearchOptions, TrainingGroup, TrialOptions
from podline.stages.table import INPUT_SPEED, LR_FIND
from podline.stages.tools import InputSpeedSpec, LearningRateSpec
from podline.store.opening import open_store
from podline.training.searches import learning_rate_spec


@click.group("tune", cls=pages.Group)
def tune() -> None:
    """Find a learning rate or other values of a recipe, or measure the input's speed."""


@stage_command(
    "lr",
    recipe_argument,
    command_line(SearchOptions),
    command_line(TrainingGroup, "model", "batch_size", "seed", "init", "assignments"),
    strategy_option,
    fingerprint_option,
    group=tune,
)
def learning_rate(request: Request, fingerprint: str | None, **options: Any) -> LearningRateSpec:
    """Find a learning rate for a recipe, with a learning-rate range test.

    The rate rises from step to step, and the loss shows how high it may be. The command trains a copy of the model,
    with the recipe's data, augmentation and optimizer, until the smoothed loss explodes or the last rate is reached. It
    suggests a peak rate for the recipe's schedule, with reasons and a chart. It changes no run. A finished test is
    re-used.

      podline tune lr cifar10 --root podline-root
      podline tune lr mnist --set optimizer.kind=adam --high 1
      podline tune lr cifar10 --run cifar10-0123456789ab

    Next: `podline train RECIPE --learning-rate` with the suggested rate. docs/how-to/learning-rate.md explains the
    chart.
    """
    search = SearchOptions(**{name: options.pop(name) for name in SearchOptions.model_fields})
    return learning_rate_spec(
        request.store,
        request.recipe,
        request.reporter(LR_FIND),
        fingerprint=fingerprint,
        choices=Choices(**options),
        strategy=request.settings.strategy,
        **dict(search),
    )


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

    Each trial is a run of the store, with an entry in the ledger. The first trial has the recipe's own values; later
    trials get values by the results so far. Trials are compared on held-out examples (validation_share), never on the
    test split. A trial that is worse than half of the earlier trials ends early. After an interruption, the same
    command continues.

      podline tune search sample --over schedule.learning_rate=log:0.01..1 --over model.width=0.5,1 --trials 10
      podline tune search mnist --over optimizer.kind=sgd,adam --over augmentation.pad=0..4 --minutes 60

    Next: `podline evaluate` with the best run. docs/how-to/search.md explains the page with the results.
    """
    settings = load_settings(options)
    given = TrialOptions(**{name: options.pop(name) for name in TrialOptions.model_fields})
    store = open_store(settings.root)
    with display.shown() as listener:
        request, reporter = Request(recipe, store, settings, listener), Reporter("search", listener)
        spec = search_spec(
            store,
            Choices(**options).apply(request.recipe),
            given.over,
            reporter,
            fingerprint=fingerprint,
            strategy=settings.strategy,
            trials=given.trials,
            minutes=given.minutes,
        )
        result = search(store, spec, request.train, reporter)
    answer(result, lambda: result.lines(store.where), as_json=as_json)


@stage_command(
    "input",
    recipe_argument,
    click.option(
        "--seconds",
        type=Number(0.01, 60),
        default=0.5,
        show_default=True,
        help="How long each step of the input is measured, in seconds.",
    ),
    command_line(TrainingGroup, "model", "batch_size", "assignments"),
    fingerprint_option,
    group=tune,
)
def input_speed(request: Request, seconds: float, fingerprint: str | None, **options: Any) -> InputSpeedSpec:
    """Measure the speed of a recipe's input and of its training step, to find which of the two is slower.

    The command takes about 20 seconds and uses the functions of a training on the converted data set. It measures
    reading alone, augmentation alone, and the training step with the share of time that it waits for input.

      podline tune input cifar10 --root podline-root
      podline tune input mnist --batch-size 1024 --set augmentation.pad=0 --json

    Rates differ between machines, so run the command where you train. docs/how-to/input.md has remedies.
    """
    chosen = Choices(**options).apply(request.recipe)
    dataset = dataset_for(request.store, chosen, fingerprint, request.reporter(INPUT_SPEED))
    return InputSpeedSpec(root=request.store.uri, recipe=chosen, fingerprint=dataset.fingerprint, seconds=seconds)
