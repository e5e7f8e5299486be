"""Recipes by name and their overrides."""

from __future__ import annotations

import importlib

import pytest

from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.settings import Duration, Recipe


@pytest.mark.parametrize("name", registry.names())
def test_every_recipe_has_its_name_and_says_its_command(name: str) -> None:
    assert registry.get(name).name == name
    written = importlib.import_module(f"podline.recipes.{name}").__doc__
    assert f"podline run {name}" in written


def test_an_unknown_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match="no recipe 'cifar1'; did you mean 'cifar10'"):
        registry.get("cifar1")


RECIPE = Recipe(name="tiny", dataset="sample", duration=Duration(epochs=3), evaluate_every=None)


def test_overrides_reach_into_the_parts_of_a_recipe() -> None:
    changed = registry.override(RECIPE, {"schedule.learning_rate": 0.5, "model.kind": "linear", "seed": 4})
    assert (changed.schedule.learning_rate, changed.model.kind, changed.seed) == (0.5, "linear", 4)
    assert changed.schedule.kind == RECIPE.schedule.kind
    assert RECIPE.seed == 0


def test_one_length_takes_the_place_of_another() -> None:
    assert registry.override(RECIPE, {"duration.steps": 7}).duration == Duration(steps=7)
    assert registry.override(RECIPE, {"evaluate_every.steps": 7}).evaluate_every == Duration(steps=7)
    assert registry.override(RECIPE, {"duration": {"examples": 9}}).duration == Duration(examples=9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule.learning_rat": 1}, r"no 'schedule.learning_rat'; did you mean 'schedule.learning_rate'\?"),
        ({"learning_rate": 1}, r"no 'learning_rate'; did you mean 'schedule.learning_rate'\?"),
        ({"batch_size": 0}, "recipe tiny: batch_size = 0: Input should be greater than or equal to 1"),
        ({"model.kind": "vgg"}, "there is no model 'vgg'; known: linear, resnet, mobilenetv2"),
        ({"model": 3}, "recipe tiny: model = 3: "),
        ({"duration.steps.more": 3}, "no 'duration.steps.more'"),
        (
            {"pose.side": 64},
            "recipe tiny: pose.side: Value error, dataset=sample vs pose=given: its kind is classification",
        ),
    ],
)
def test_an_override_that_cannot_be_is_one_clear_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        registry.override(RECIPE, changes)
    assert "\n" not in str(caught.value)
