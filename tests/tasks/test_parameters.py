"""The form: what it allows, what it refuses, what it means."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.settings import Duration
from tasks.parameters import CifarParameters, CocoParameters
from tasks.sources import conversion_of


def test_an_untouched_form_is_the_recipe_as_it_is_written() -> None:
    assert CifarParameters().training_recipe() == registry.get("sample")


def test_what_is_filled_in_changes_the_recipe() -> None:
    recipe = CifarParameters(
        recipe="mnist",
        source="mnist",
        steps=7,
        batch_size=32,
        learning_rate=0.5,
        model="linear",
        seed=0,
        assignments=("augmentation.pad=3",),
    ).training_recipe()
    assert recipe.duration == Duration(steps=7)
    assert (recipe.batch_size, recipe.schedule.learning_rate, recipe.model.kind, recipe.seed) == (32, 0.5, "linear", 0)
    assert recipe.augmentation.pad == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 1, "epochs": 2}, "epochs=2 and steps=1: give one of"),
        ({"recipe": "mnist"}, "the recipe mnist needs a source"),
        (
            {"source": "https://me:hush@host/x.tgz"},
            r"source https://\*\*\*@host/x.tgz: a source has no user or password",
        ),
        ({"assignments": ("model.kin=linear",)}, "no 'model.kin'; did you mean 'model.kind'"),
    ],
)
def test_what_the_form_cannot_refuse_is_refused_all_the_same(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        CifarParameters.model_validate(given)


@pytest.mark.parametrize("given", [{"steps": -1}, {"recipe": "coco"}, {"step": 1}, {"seed": -2}])
def test_bounds_and_names_are_those_of_the_form(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CifarParameters.model_validate(given)


def test_without_a_source_people_are_drawn_and_with_one_it_is_coco(tmp_path: Path) -> None:
    drawn, given = CocoParameters(steps=7), CocoParameters(source="coco", assignments=("pose.side=96",))
    assert drawn.training_recipe().dataset == drawn.drawn == "coco_sample"
    assert given.drawn is None
    assert given.training_recipe() == registry.override(registry.get("coco_pose"), {"pose.side": 96})
    conversion = conversion_of(given, str(tmp_path), workers=2)
    assert (conversion.dataset, conversion.side, conversion.max_people) == ("coco", 96, 20)
    assert drawn.command("/root") == "podline run coco_pose --root /root --steps 7"


def test_the_command_does_the_same_again() -> None:
    parameters = CifarParameters(recipe="mnist", source="my data/mnist", steps=7, assignments=("model.width=0.5",))
    assert parameters.command("/root dir") == (
        "podline run mnist --source 'my data/mnist' --root '/root dir' --steps 7 --set model.width=0.5"
    )
