"""The form: what it allows, what it refuses, what it means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prefect.utilities.names import generate_slug
from pydantic import ValidationError

from podline.data.sources.coco_settings import CocoSettings
from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.settings import Duration
from podline.settings import Settings
from podline.store.opening import open_store
from podline.tasks.form_rules import not_shown
from podline.tasks.forms import drawn, read_form
from podline.tasks.parameters import CifarParameters, CocoParameters, TrainingGroup
from podline.tasks.sources import conversion_of


def test_an_untouched_form_is_the_recipe_as_it_is_written() -> None:
    assert CifarParameters().training_recipe() == registry.get("sample")


def test_what_is_filled_in_changes_the_recipe() -> None:
    recipe = CifarParameters(
        recipe="mnist",
        source="mnist",
        steps=7,
        model="linear",
        training=TrainingGroup(batch_size=32, learning_rate=0.5, seed=0, assignments=("augmentation.pad=3",)),
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


def test_parameters_saved_before_there_were_groups_mean_what_they_meant() -> None:
    old = {"recipe": "sample", "batch_size": 64, "seed": 3, "root": "/store", "beam_options": ["--x=1"]}
    grouped = {
        "recipe": "sample",
        "training": {"batch_size": 64, "seed": 3},
        "machine": {"root": "/store", "beam_options": ["--x=1"]},
    }
    assert CifarParameters.model_validate(old) == CifarParameters.model_validate(grouped)
    assert not_shown(CifarParameters, old) == {name: value for name, value in old.items() if name != "recipe"}
    assert not_shown(CifarParameters, grouped) == {}
    # The form adds the defaults of each group to what is saved.
    filled_in = CifarParameters().model_dump() | old
    assert CifarParameters.model_validate(filled_in) == CifarParameters.model_validate(grouped)
    assert CifarParameters.model_validate({"keep_files": True}).machine.keep_files
    with pytest.raises(SettingsError, match=r"seed=3 vs training.seed=4: give it once, as training.seed"):
        CifarParameters.model_validate({"seed": 3, "training": {"seed": 4}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": -1}, "Steps = -1: Input should be greater than or equal to 0"),
        ({"training": {"batch_size": "many"}}, "Training, Batch size = 'many': Input should be a valid integer"),
        ({"step": 1}, "there is no field 'step'; did you mean 'steps'?"),
        ({"machine": {"roof": "x"}}, "there is no field 'roof'; did you mean 'root'?"),
    ],
)
def test_a_value_that_cannot_be_is_told_by_the_title_of_its_field(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(message)}"):
        read_form(CifarParameters, given)


@pytest.mark.parametrize(
    ("name", "generated"), [("amiable-mammoth", True), ("baseline-resnet", False), ("try 3", False)]
)
def test_a_name_that_prefect_drew_is_told_from_one_that_a_person_gave(name: str, generated: bool) -> None:
    assert drawn(name) == generated


def test_every_name_that_prefect_draws_is_known() -> None:
    assert all(drawn(generate_slug(2)) for _ in range(500))


@pytest.mark.parametrize("given", [{"steps": -1}, {"recipe": "coco"}, {"step": 1}, {"seed": -2}])
def test_bounds_and_names_are_those_of_the_form(given: dict[str, object]) -> None:
    with pytest.raises((ValidationError, SettingsError)):
        CifarParameters.model_validate(given)


def test_without_a_source_people_are_drawn_and_with_one_it_is_coco(tmp_path: Path) -> None:
    drawn, given = (
        CocoParameters(steps=7),
        CocoParameters(source="coco", training=TrainingGroup(assignments=("pose.side=96",))),
    )
    assert drawn.training_recipe().dataset == drawn.drawn == "coco_sample"
    assert given.drawn is None
    assert given.training_recipe() == registry.override(registry.get("coco_pose"), {"pose.side": 96})
    conversion = conversion_of(given, open_store(tmp_path), Settings(workers=2, engine="prism"))
    assert (conversion.dataset, conversion.settings) == ("coco", CocoSettings(side=96))
    assert (conversion.engine, conversion.workers) == ("prism", 2)
    assert drawn.command("/root") == "podline run coco_pose --root /root --steps 7"


def test_the_command_does_the_same_again() -> None:
    parameters = CifarParameters(
        recipe="mnist", source="my data/mnist", steps=7, training=TrainingGroup(assignments=("model.width=0.5",))
    )
    assert parameters.command("/root dir") == (
        "podline run mnist --source 'my data/mnist' --root '/root dir' --steps 7 --set model.width=0.5"
    )
