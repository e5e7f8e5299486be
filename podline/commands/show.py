"""``podline show``: a sheet of pictures of what a model is fed, and of what a run makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
from podline.inventory.catalogue import dataset_for, training_of
from podline.options import Choices
from podline.stages.from_recipe import fitted
from podline.stages.table import SHOW
from podline.stages.tools import ShowSpec
from podline.store.opening import open_store


@click.command("show", cls=pages.Command)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.option("--run", help="A finished run of the recipe: show its predictions and its mistakes as well.")
@click.option("--out", type=click.Path(path_type=Path), help="The PNG file to write.  [default: sheets/… in the store]")
@click.option(
    "--pictures", type=click.IntRange(1, 20), default=8, show_default=True, help="How many examples are side by side."
)
@click.option(
    "--draws", type=click.IntRange(1, 20), default=4, show_default=True, help="Of how many epochs the draws are shown."
)
@in_order(recipe_options, fingerprint_option, store_options)
@json_option
def show(
    recipe: str,
    run: str | None,
    out: Path | None,
    pictures: int,
    draws: int,
    fingerprint: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """A sheet of pictures of what the model is fed: with labels, before augmentation and after it.

    Each column is an example of the first batch; below it, what chance makes of it in the first epochs. With --run
    also what the run says of test examples, right or wrong, and the mistakes that it was most confident of.

      podline show cifar10 --root podline-root
      podline show cifar10 --set augmentation.cutout=16 --out cutout.png
      podline show mnist --run mnist-0123456789ab --out mistakes.png

    Nothing but the PNG is written. `podline runs list` shows the runs.
    """
    settings = load_settings(options)
    store = open_store(settings.root)
    with display.shown() as listener:
        request = Request(recipe, store, settings, listener)
        chosen = request.recipe
        if run is not None:
            training = training_of(store, run, chosen)
            chosen, fingerprint = training.recipe, training.fingerprint
        target = out or store.beside / "sheets" / f"{run or recipe}.png"
        chosen = Choices(**options).apply(chosen)
        found = dataset_for(store, chosen, fingerprint, request.reporter(SHOW))
        spec = ShowSpec(
            root=store.uri,
            recipe=fitted(store, chosen, found.folder),
            fingerprint=found.fingerprint,
            run=run or "",
            out=str(target.expanduser().absolute()),
            examples=pictures,
            epochs=draws,
        )
        result = perform(spec, listener, settings)
    if as_json:
        say_json(result.model_dump(mode="json"))
    else:
        say(result.lines())
