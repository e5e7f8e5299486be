"""Makes a command from a function that makes a stage's spec: the command runs the stage and prints the result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.commands import display, pages
from podline.commands.options import answer, in_order, json_option, load_settings, say_json, store_options
from podline.ledger.requests import Request, performed
from podline.stages.base import Result, Spec
from podline.stages.supervision.running import perform
from podline.stages.table import Stage
from podline.stages.tools import PreflightSpec
from podline.store.opening import open_store

# Ray is an optional dependency.
_LAUNCHED = "podline.stages.supervision.ray_hosts:launched"
_spec_option = click.option(
    "--spec",
    "spec_file",
    type=click.File(),
    help="Read the spec from a JSON file (- is standard input); see --show-spec.",
)
_BESIDE_SPEC = {"root", "spec_file", "show_spec", "settings_file", "as_json", "rehearse", "launch", "hosts"}
show_spec_option = click.option("--show-spec", is_flag=True, help="Only print the stage's spec as JSON, for --spec.")


def say_result(spec: Spec, result: Result, *, as_json: bool) -> None:
    """Print a stage's result."""
    answer(result, lambda: result.lines(open_store(spec.root).where), as_json=as_json)


def stage_command(
    name: str,
    *options: Callable[[Any], Any],
    group: click.Group | None = None,
    stage: Stage[Any, Any] | None = None,
    say: Callable[..., None] = say_result,
) -> Callable[[Callable[..., Spec]], click.Command]:
    """Return a decorator that makes a command from a function that makes a spec; its docstring is the help page.

    Args:
        name: name of the command.
        options: the command's own options, in the order of the help page; common options follow.
        group: the group of the command, or None.
        stage: the stage, for a command with --spec and --show-spec; else None.
        say: prints the result; called with the spec, the result and ``as_json``.
    """

    def decorate(make_spec: Callable[..., Spec]) -> click.Command:
        def run(
            as_json: bool,
            spec_file: Any = None,
            show_spec: bool = False,
            rehearse: bool = False,
            launch: str | None = None,
            **given: Any,
        ) -> None:
            if spec_file:
                _require_alone()
            root, settings = given.get("root"), load_settings(given)
            with display.shown() as listener:
                request = Request(given.pop("recipe", None), open_store(settings.root), settings, listener)
                spec = _read_spec(stage, spec_file) if stage and spec_file else make_spec(request, **given)
                if spec_file and root and open_store(spec.root).uri != request.store.uri:
                    raise SettingsError(f"got --root {root} with a spec for {spec.root}; leave --root out")
                if rehearse:
                    spec = PreflightSpec.model_validate(spec.model_dump())
                by = functools.partial(entry_points.load(_LAUNCHED), launch.partition(":")[2]) if launch else perform
                result = None if show_spec else performed(spec, listener, settings, by)
            if result is None:
                say_json(spec.model_dump(mode="json"))
            else:
                say(spec, result, as_json=as_json)

        decorated = in_order(
            *options, *((_spec_option, show_spec_option) if stage else ()), store_options, json_option
        )(run)
        command = click.command(name, cls=pages.Command, help=make_spec.__doc__)(decorated)
        if group is not None:
            group.add_command(command)
        return command

    return decorate


def _require_alone() -> None:
    """Refuse arguments and options next to --spec that a spec contains."""
    context = click.get_current_context()
    typed = [
        each.opts[0] if isinstance(each, click.Option) else each.human_readable_name
        for each in context.command.params
        if each.name not in _BESIDE_SPEC
        and context.get_parameter_source(str(each.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if typed:
        raise SettingsError(f"got --spec with {', '.join(typed)}, which the spec contains; change the spec's file")


def _read_spec(stage: Stage[Any, Any], file: Any) -> Any:
    try:
        return stage.spec.model_validate_json(file.read())
    except (ValueError, SettingsError) as error:
        problem = "; ".join(str(error).splitlines()[1:3]).strip() or str(error)
        raise SettingsError(
            f"{file.name} is not a spec of the stage {stage.name} ({problem}); --show-spec prints a valid spec"
        ) from None
