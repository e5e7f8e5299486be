"""Click options: those of the shared table :mod:`podline.stages.options`, and those of the command line only.

Also parameter types for numbers, and the printing of results.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from podline.base.errors import PodlineError, SettingsError, StoreError
from podline.base.frozen import name_check
from podline.base.plain import plain
from podline.recipes import registry
from podline.settings import engines
from podline.settings import machine as settings_module
from podline.settings.launchers import host_range
from podline.settings.machine import Settings
from podline.stages.options import (
    AS_WRITTEN,
    MachineGroup,
    Options,
    TrainingGroup,
    flag_of,
    option_of,
)
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Whole(click.IntRange):
    """A whole number within bounds that fits into 64 bits, as code in C requires."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the value as an integer; refuse one that needs more than 64 bits."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(_expected(self, value), param, ctx)
        return number if abs(number) <= sys.maxsize else self.fail(f"{value!r} is too large.", param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; refuse NaN and infinity, which click accepts."""
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        return number if math.isfinite(number) else self.fail(_expected(self, value), param, ctx)


def _expected(kind: Whole | Number, value: Any) -> str:
    low, high = (None if bound is None else f"{bound:.15g}" for bound in (kind.min, kind.max))
    bounds = [] if low is None else [f"above {low}" if kind.min_open else f"of at least {low}"]
    bounds += [] if high is None else [f"below {high}" if kind.max_open else f"of at most {high}"]
    return f"got {value!r}, expected a {kind.name} {' and '.join(bounds)}".rstrip() + "."


def in_order(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Combine several decorators into one; options appear on the help page in the order given."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def complete_recipe(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of recipes that start with ``incomplete``, for shell completion."""
    return [name for name in registry.names() if name.startswith(incomplete)]


def complete_run(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the runs whose names start with ``incomplete``, for shell completion; a ``--root`` must come before."""
    given = {"root": context.params.get("root"), "settings_file": context.params.get("settings_file")}
    store = open_store(load_settings(given).root)
    if not isinstance(store, FolderStore):  # a bucket would be too slow
        return []
    runs = sorted(path.name for path in (store.root / "runs").glob("*"))
    return [name for name in runs if name.startswith(incomplete)]


def command_line(model: type[Options], *only: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds an option for each field of a model; parameters are named like the fields.

    Args:
        model: a class of :mod:`podline.stages.options`; required fields are skipped, because they are arguments.
        only: names of the fields to use; all by default.
    """
    wanted = {name: field for name, field in model.model_fields.items() if not field.is_required()}
    return in_order(*(_click_option(name, wanted[name]) for name in only or wanted))


def _click_option(name: str, field: FieldInfo) -> Callable[[Decorated], Decorated]:
    facts = option_of(field)
    return click.option(
        flag_of(name, field),
        name,
        help=_help(field),
        metavar=facts.metavar or None,
        callback=_checked(facts.check) if facts.check else _absolute if facts.is_file else None,
        shell_complete=complete_run if facts.metavar == "RUN" else None,
        **_type(field),
    )


def _help(field: FieldInfo) -> str:
    facts, default = option_of(field), field.default
    names = f" One of {', '.join(facts.names())}." if facts.names else " May be repeated." if default == () else ""
    shown = facts.unset or (f"{default:g}" if isinstance(default, float | int) and default is not False else "")
    return f"{field.description}{names}" + (f"  [default: {shown}]" if shown and shown != AS_WRITTEN else "")


def _type(field: FieldInfo) -> dict[str, Any]:
    if field.annotation is bool:
        return {"is_flag": True}
    if get_origin(field.annotation) is tuple:
        return {"multiple": True}
    if get_origin(field.annotation) is Literal:
        return {"type": click.Choice([name for name in get_args(field.annotation) if name != field.default])}
    names = ("ge", "gt", "le")
    bounds = {name: getattr(each, name) for each in field.metadata for name in names if hasattr(each, name)}
    if not bounds:
        return {"type": field.annotation}
    low = bounds.get("gt", bounds.get("ge"))
    # The default value means "not given", so a user cannot choose it.
    is_open = "gt" in bounds or bool(option_of(field).unset and low == field.default)
    kind = Whole if field.annotation is int else Number
    return {"type": kind(low, bounds.get("le"), min_open=is_open)}


def _checked(check: Callable[[str], str]) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def checked(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        try:
            return None if name is None else check(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return checked


def _absolute(_context: click.Context, _parameter: click.Parameter, file: str | None) -> str | None:
    return None if file is None else absolute(file)


def complete_either(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the recipes and runs whose names start with ``incomplete``, for shell completion."""
    return [*complete_recipe(context, parameter, incomplete), *complete_run(context, parameter, incomplete)]


def table_option(flag: str, text: str) -> Callable[[Decorated], Decorated]:
    """Make an option for a table to write, .csv or .parquet, with the help ``text``."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, metavar="FILE", type=kind, callback=_is_table, help=text)


def _is_table(_context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    if file and file.suffix.lower() not in (".csv", ".parquet"):
        raise SettingsError(f"{parameter.opts[0]}: got {file.name}, expected a file name that ends in .csv or .parquet")
    return file


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
settings_option = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="A TOML file of settings; see docs/reference/settings.md.",
)
store_options = in_order(command_line(MachineGroup, "root"), settings_option)


def _without_version(context: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """Remove @3 or @2..3 from NAME, for :func:`_or_version`."""
    before, at, number = (name or "").partition("@")
    if (
        at
        and re.fullmatch(r"\d+(\.\.\d+)?", number)
        and any(parameter.name == "fingerprint" for parameter in context.command.params)
    ):
        context.meta[_VERSION] = f"@{number}"
        return before
    return name


def _or_version(context: click.Context, _: click.Parameter, fingerprint: str | None) -> str | None:
    if fingerprint and (version := context.meta.get(_VERSION)):
        raise SettingsError(f"got {version} after the name and --fingerprint {fingerprint}, expected one of the two")
    return fingerprint or context.meta.get(_VERSION)


_VERSION = "podline.version"
_versioned: Any = functools.partial(click.argument, callback=_without_version, is_eager=True)
dataset_argument = _versioned("name", metavar="NAME")
fingerprint_option = click.option(
    "--fingerprint",
    callback=_or_version,
    help="The data set's version: @3, or the start of its fingerprint.  [default: the newest; for a run, its own]",
)
deep_option = click.option(
    "--deep",
    is_flag=True,
    help="Also decode every record, recompute the manifest's statistics, and search for images in two splits.",
)
run_argument = click.argument("run", metavar="RUN", shell_complete=complete_run)
recipe_argument = _versioned("recipe", metavar="RECIPE", shell_complete=complete_recipe)
recipe_or_run_argument = _versioned("recipe", required=False, metavar="RECIPE", shell_complete=complete_either)
run_or_recipe_argument = click.argument("recipe", required=False, metavar="RUN", shell_complete=complete_either)
engine_argument = click.argument("engine", callback=_checked(engines.checked), metavar="ENGINE")
assignments_option = command_line(TrainingGroup, "assignments")
strategy_option = command_line(MachineGroup, "strategy")
launch_options = (
    click.option(
        "--launch",
        metavar="ray:ADDRESS",
        callback=_checked(name_check("--launch", r"ray:\S+", "ray:ADDRESS, such as ray:auto or ray:10.0.0.1:6379")),
        help="Train on the nodes of a Ray cluster.",
    ),
    click.option(
        "--hosts",
        metavar="N..M",
        callback=_checked(host_range),
        help="The number of hosts that train together.  [default: the setting hosts, else all hosts]",
    ),
)


def load_settings(options: dict[str, Any]) -> Settings:
    """Return the settings; options that are settings override them, and are removed from ``options``.

    The path of ``--settings`` is stored in the environment, so that later reads, also in children, use the file.
    """
    file = options.pop("settings_file", None)
    if file is not None:
        settings_module.use_file(file)
    given = {name: options.pop(name, None) for name in ("root", "engine", "workers", "strategy", "hosts")}
    given = {name: value for name, value in given.items() if value is not None}
    return settings_module.with_options(settings_module.load(), given)


def existing_store(options: dict[str, Any], *, deletes: bool = False) -> Store:
    """Return the store of ``--root`` or the settings, for a command that must not create a store.

    Args:
        options: the options of the command; the options of the store are removed.
        deletes: whether the command deletes runs or data sets, which requires the store's marker file.

    Raises:
        StoreError: the store is a folder that does not exist; or ``deletes`` is set and there is no marker file.
    """
    store = open_store(load_settings(options).root)
    if isinstance(store, FolderStore) and not store.root.is_dir():
        raise StoreError(f"the store {store.uri} does not exist; give --root DIR, or make one with `podline run`")
    if deletes:
        store.require_marker()
    return store


def in_store(command: Callable[..., None], *, deletes: bool = False) -> Callable[..., None]:
    """Pass the store of --root or the settings as the command's first argument; add the options of a store and --json.

    Args:
        command: the function of the command.
        deletes: see :func:`existing_store`.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        command(existing_store(options, deletes=deletes), **options)

    return in_order(store_options, json_option)(run)


def checked_first(check: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that checks options of a command before :func:`in_store` opens the store.

    Args:
        check: raises a SettingsError; its parameters are named like the options.
    """
    names = [*inspect.signature(check).parameters]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            check(*(options[name] for name in names))
            command(**options)

        return run

    return decorate


deleting_in_store = functools.partial(in_store, deletes=True)


def dataset_named(name: str) -> str:
    """Return the name of a recipe's data set; other names are returned unchanged."""
    return registry.get(name).dataset if registry.has(name) else name


def absolute(source: str) -> str:
    """Make a source's path absolute; leave a URI or an empty text unchanged."""
    return source if "://" in source or not source.strip() else str(Path(source).expanduser().absolute())


def say(lines: Sequence[str]) -> None:
    """Print lines of text, without control characters."""
    click.echo(plain("\n".join(lines)))


def say_json(document: Any) -> None:
    """Print the JSON document of ``--json``; a later error of the command then prints no second document."""
    click.get_current_context().ensure_object(dict)["said_json"] = True
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def answer(document: Any, lines: Callable[[], Sequence[str]], *, as_json: bool) -> None:
    """Print the result of a command.

    Args:
        document: the result as a pydantic model or a JSON value.
        lines: returns the result as lines of text; called only without ``--json``.
        as_json: whether ``--json`` was given.
    """
    if as_json:
        say_json(document.model_dump(mode="json") if isinstance(document, BaseModel) else document)
    else:
        say(lines())


def raise_damaged(damaged: Sequence[PodlineError]) -> None:
    """Print all errors but the last; raise the last. A command that lists documents calls this after its output.

    Raises:
        PodlineError: the last error.
    """
    for error in damaged[:-1]:
        click.echo(f"{error}", err=True)
    if damaged:
        raise damaged[-1]
