"""docs/reference/cli.md: every command, and every option."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from podline import cli
from podline.stages.options import (
    ConvertOptions,
    DataGroup,
    MachineGroup,
    Options,
    RunOptions,
    SearchOptions,
    TrainingGroup,
    flag_of,
    option_of,
)
from reference import table

SHOWN: dict[str, type[Options]] = {
    "a run": RunOptions,
    "training": TrainingGroup,
    "data": DataGroup,
    "machine": MachineGroup,
    "conversion alone": ConvertOptions,
    "learning-rate search": SearchOptions,
}


def commands(group: click.Group, context: click.Context, name: str = "podline") -> Iterator[tuple[str, click.Command]]:
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if command.hidden or each == "benchmark":
            continue
        inner = click.Context(command, parent=context, info_name=each)
        if isinstance(command, click.Group):
            yield from commands(command, inner, f"{name} {each}")
        else:
            yield f"{name} {each}", command


def usage(name: str, command: click.Command) -> str:
    arguments = (
        each.make_metavar(click.Context(command)) for each in command.params if isinstance(each, click.Argument)
    )
    return " ".join([f"`{name}", *arguments]) + "`"


def purpose(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def shared(model: type[Options]) -> str:
    """A group of the options that commands and forms share."""
    inherited = set(DataGroup.model_fields) if model is ConvertOptions else set[str]()
    rows: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        facts = option_of(field)
        default = facts.unset or ("" if field.is_required() or field.default in ("", ()) else f"{field.default}")
        names = f" One of {', '.join(facts.names())}." if facts.names else ""
        flag = "RECIPE" if field.is_required() else f"`{flag_of(name, field)}`"
        path = f"`{facts.path}`" if facts.path else ""
        rows.append((flag, field.title or "", path, default.replace("False", "no"), f"{field.description}{names}"))
    return table(("option", "title in the form", "sets", "default", "meaning"), rows)


def others(found: Iterable[tuple[str, click.Command]]) -> str:
    known = {option_flag for model in SHOWN.values() for option_flag in flags(model)} | {"--json", "--settings"}
    own: dict[tuple[str, str], list[str]] = {}
    for name, command in found:
        for each in command.params:
            if isinstance(each, click.Option) and not each.hidden and each.opts[0] not in known:
                text = " ".join((each.help or "").split())
                own.setdefault((f"`{each.opts[0]}`", text), []).append(f"`{name.removeprefix('podline ')}`")
    rows = sorted((flag, ", ".join(where), text) for (flag, text), where in own.items())
    return table(("option", "of", "meaning"), rows)


def flags(model: type[Options]) -> Iterator[str]:
    return (flag_of(name, field) for name, field in model.model_fields.items())


def tables() -> dict[str, str]:
    found = list(commands(cli.cli, click.Context(cli.cli, info_name="podline")))
    return {
        "Commands": table(("command", "purpose"), ((usage(name, each), purpose(each)) for name, each in found)),
        **{f"Options: {title}": shared(model) for title, model in SHOWN.items()},
        "Other options": others(found),
    }
