"""An option is declared in one place."""

from __future__ import annotations

import click
from click.testing import CliRunner

from podline.commands.options import command_line
from podline.stages.options import TrainingGroup, option


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
