"""Options that several commands share, each declared once, and what they become."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from podline import engines, strategies
from podline import settings as settings_module
from podline.errors import SettingsError, StoreError
from podline.plain import plain
from podline.recipes import registry
from podline.recipes.parts import LAYOUTS, MODELS
from podline.recipes.settings import Recipe
from podline.settings import Settings
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def in_order(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator, in the order in which the help page is to list them."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
settings_option = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="A TOML file of settings; see docs/settings.md.",
)
root_option = click.option(
    "--root", help="The store: a folder, or gs://bucket/prefix.  [default: the setting root, podline-root]"
)
store_options = in_order(root_option, settings_option)
deep_option = click.option(
    "--deep",
    is_flag=True,
    help="Also decode every record, compute the manifest's figures again, and look for images in two splits.",
)
layout_option = click.option(
    "--layout",
    type=click.Choice(LAYOUTS.names()),
    help="Of a source of images; see docs/images.md.  [default: what is found there]",
)


def _checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return an option's callback from a function that raises ValueError."""

    def checked(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        try:
            return None if name is None else check(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return checked


engine_option = click.option(
    "--engine",
    callback=_checked(engines.checked),
    metavar="NAME",
    help=f"Where the conversion runs: {engines.NAMES}. The bytes do not depend on it; see docs/engines.md.  "
    "[default: the setting engine, local]",
)
beam_options_option = click.option(
    "--beam-option",
    "beam_options",
    multiple=True,
    metavar="OPTION",
    help="A further option of Beam, like --beam-option=--region=us-central1; repeatable. See docs/engines.md.",
)
engine_argument = click.argument("engine", callback=_checked(engines.checked), metavar="ENGINE")
conversion_options = in_order(
    engine_option,
    click.option("--workers", type=click.IntRange(1), help="Worker processes of the engine local."),
    beam_options_option,
    click.option(
        "--allow-left-out",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="The share of the source's records, or of its people, that may be left out; more is an error. The bytes "
        "do not depend on it.  [default: 0.1]",
    ),
    layout_option,
)
assignments_option = click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any value of the recipe, like --set augmentation.cutout=8; may be repeated.",
)


strategy_option = click.option(
    "--strategy",
    callback=_checked(strategies.checked),
    metavar="NAME",
    help="Where the model runs: auto (the GPUs, else the CPU), cpu, cpu:N (N replicas on the CPU), gpu, workers "
    "(several processes that find each other by TF_CONFIG), tpu, tpu:NAME. It does not change the run: what began on "
    "one goes on on another; see docs/strategies.md.  [default: the setting strategy, auto]",
)


def _absolute(_context: click.Context, _parameter: click.Parameter, file: str | None) -> str | None:
    return None if file is None else absolute(file)


def complete_recipe(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the recipes' names that begin so, for the shell."""
    return [name for name in registry.names() if name.startswith(incomplete)]


def complete_run(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the runs that begin so, in the store of a ``--root`` that stands before them."""
    given = {"root": context.params.get("root"), "settings_file": context.params.get("settings_file")}
    store = open_store(load_settings(given).root)
    if not isinstance(store, FolderStore):  # a bucket would have the person wait
        return []
    runs = sorted(path.name for path in (store.root / "runs").glob("*"))
    return [name for name in runs if name.startswith(incomplete)]


def _complete_either(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [*complete_recipe(context, parameter, incomplete), *complete_run(context, parameter, incomplete)]


recipe_argument = click.argument("recipe", required=False, metavar="RECIPE", shell_complete=_complete_either)
recipe_options = in_order(
    click.option("--epochs", type=float, help="Train for so many passes over the data …"),
    click.option("--steps", type=int, help="… or so many batches …"),
    click.option("--examples", type=int, help="… or so many examples; give one of these."),
    click.option("--batch-size", type=int, help="Examples in a step."),
    click.option("--learning-rate", type=float, help="The peak of the schedule."),
    click.option("--schedule", help="constant, exponential, cosine, one_cycle or plateau; see docs/schedules.md."),
    click.option("--seed", type=int, help="Of weights, order, augmentation and dropout."),
    click.option("--model", help=f"{', '.join(MODELS.names())}; see docs/extending.md for one of your own."),
    click.option(
        "--further",
        metavar="RUN",
        shell_complete=complete_run,
        help="Train this finished run further; see docs/training.md.",
    ),
    click.option(
        "--init",
        metavar="FILE",
        callback=_absolute,
        help="Begin with the weights of a .keras, .h5 or .npz file or a SavedModel; see docs/finetuning.md.",
    ),
    assignments_option,
)


minutes_option = click.option(
    "--minutes",
    type=click.FloatRange(0, 100_000, min_open=True),
    help="Train for as long as fits into so many minutes here: measured the first time, kept in the store.",
)


def with_layout(assignments: tuple[str, ...], layout: str | None) -> tuple[str, ...]:
    """What ``--set`` says, and ``--layout``."""
    return assignments if layout is None else (*assignments, f"conversion.layout={layout}")


def load_settings(options: dict[str, Any]) -> Settings:
    """The settings, with what ``--settings`` and the options of the same name say; takes them out of ``options``.

    The file is named in the environment from then on, so that whatever reads the settings later reads the same.
    """
    file = options.pop("settings_file", None)
    if file is not None:
        settings_module.use_file(file)
    given = {name: options.pop(name, None) for name in ("root", "engine", "workers", "strategy")}
    return settings_module.load().model_copy(update={name: value for name, value in given.items() if value is not None})


def existing_store(options: dict[str, Any]) -> Store:
    """Return the store that ``--root`` or the settings name, for commands that make nothing in it.

    Raises:
        StoreError: it is a folder that does not exist.
    """
    store = open_store(load_settings(options).root)
    if isinstance(store, FolderStore) and not store.root.is_dir():
        raise StoreError(f"the store {store.uri} does not exist; give --root DIR, or make one with `podline run`")
    return store


name_option = click.option(
    "--name",
    "own_name",
    help="What images or keypoints of one's own are called in the store: flowers makes data set and recipe "
    "images.flowers.  [default: the source's folder]",
)


def recipe_of(name: str | None) -> Recipe:
    """The recipe of a name.

    Raises:
        SettingsError: there is none, or no name was given.
    """
    if name is None:
        raise SettingsError(f"which recipe? give one of {', '.join(registry.names())}, a Python file, or --spec FILE")
    return registry.get(name)


def dataset_named(name: str) -> str:
    """The data set of a name, which may be that of a recipe with data of another name."""
    return registry.get(name).dataset if registry.has(name) else name


def absolute(source: str) -> str:
    """A source's place, wherever it is read from; a URI stays what it is."""
    return source if "://" in source else str(Path(source).expanduser().absolute())


def say(lines: Sequence[str]) -> None:
    """Lines for a person, on standard output."""
    click.echo(plain("\n".join(lines)))


def say_json(document: Any) -> None:
    """The one JSON document of ``--json``, on standard output; an error after it prints no second one."""
    click.get_current_context().ensure_object(dict)["said_json"] = True
    click.echo(json.dumps(document, indent=2, allow_nan=False))
