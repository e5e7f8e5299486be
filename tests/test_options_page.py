"""The table of options: docs/reference/options.md shows all of it, and an option is declared in one place.

After an option changed: ``RENEW_SNAPSHOTS=1 pytest tests/test_options_page.py`` writes the page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
from click.testing import CliRunner

from podline.commands.options import command_line
from podline.options import (
    ConvertOptions,
    DataGroup,
    MachineGroup,
    Options,
    RunOptions,
    SearchOptions,
    TrainingGroup,
    flag_of,
    option,
    option_of,
)

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"
SHOWN: dict[str, type[Options]] = {
    "A run": RunOptions,
    "Training": TrainingGroup,
    "Data": DataGroup,
    "Machine": MachineGroup,
    "Conversion alone": ConvertOptions,
    "Learning-rate search": SearchOptions,
}
ABOUT = """# Options

Every option of `podline run`, of the stages' commands and of the forms in Prefect's UI. In a form an option has the \
title of its row; on the command line it has the name in the first column. "Sets" is the value of the recipe that it \
changes, for `--set`, a Python file or a notebook. `podline COMMAND --help` says which command has which.
"""


def section(title: str, model: type[Options]) -> str:
    rows = [f"## {title}\n", "| option | title in the form | sets | default | |", "|---|---|---|---|---|"]
    inherited = set(DataGroup.model_fields) if model is ConvertOptions else ()
    own = {name: field for name, field in model.model_fields.items() if name not in inherited}
    for name, field in own.items():
        facts = option_of(field)
        flag = "RECIPE" if field.is_required() else f"`{flag_of(name, field)}`"
        default = facts.unset or ("" if field.is_required() or field.default in ("", ()) else f"{field.default}")
        names = f" One of {', '.join(facts.names())}." if facts.names else ""
        path = f"`{facts.path}`" if facts.path else ""
        text = re.sub(r"docs/([a-z-]+)/([a-z-]+\.md)", r"[\2](../\1/\2)", f"{field.description}{names}")
        rows.append(f"| {flag} | {field.title} | {path} | {default.replace('False', 'no')} | {text} |")
    return "\n".join(rows)


def test_the_page_shows_the_whole_table() -> None:
    written = "\n\n".join([ABOUT.rstrip(), *(section(title, model) for title, model in SHOWN.items())]) + "\n"
    if os.environ.get("RENEW_SNAPSHOTS"):
        PAGE.write_text(written)
    assert PAGE.read_text() == written, "an option changed: RENEW_SNAPSHOTS=1 writes the page again"


class Enlarged(TrainingGroup):
    """The options of training, and one more."""

    width: float = option(0.0, "Width", "How wide it is.", ge=0, le=4, path="model.width")
    dropped: tuple[str, ...] = option((), "Dropped", "What is left out.", metavar="NAME")


def test_one_declaration_is_an_option_a_form_field_a_recipe_value_and_what_to_type() -> None:
    asked: list[Enlarged] = []

    @click.command()
    @command_line(Enlarged)
    def train(**given: object) -> None:
        asked.append(Enlarged.model_validate(given))

    answer = CliRunner().invoke(train, ["--width", "0.5", "--dropped", "a b", "--dropped", "c", "--seed", "0"])
    assert answer.exit_code == 0, answer.output
    assert asked[0].changes() == {"model.width": 0.5, "seed": 0}
    assert asked[0].as_options() == " --seed 0 --width 0.5 --dropped 'a b' --dropped c"
    assert CliRunner().invoke(train, ["--width", "0"]).exit_code == 2
    assert "How wide it is." in CliRunner().invoke(train, ["--help"]).output
    field = Enlarged.model_json_schema()["properties"]["width"]
    assert (field["title"], field["minimum"], field["maximum"]) == ("Width", 0, 4)
    assert field["description"] == "How wide it is. 0: as the recipe says."
    assert field["position"] == len(TrainingGroup.model_fields)
