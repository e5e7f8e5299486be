"""Recipes are found by name, and overridden by values that are refused in one line where they cannot be."""

from __future__ import annotations

import importlib
import unicodedata

import pytest

from podline.base.errors import SettingsError
from podline.recipes import datasets, registry
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import Recipe


@pytest.mark.parametrize("name", registry.names())
def test_every_recipe_has_its_name_and_says_its_command(name: str) -> None:
    assert registry.get(name).name == name
    module = importlib.import_module(f"podline.kinds.{registry.get(name).kind}.recipes.{name.replace('-', '_')}")
    assert f"podline run {name}" in (module.__doc__ or "")


RECIPE = Recipe(name="tiny", dataset="sample", duration=Duration(epochs=3), evaluate_every=None)


def test_overrides_reach_into_the_parts_of_a_recipe_and_one_length_takes_the_place_of_another() -> None:
    changed = registry.override(RECIPE, {"schedule.learning_rate": 0.5, "model.kind": "linear", "seed": 4})
    assert (changed.schedule.learning_rate, changed.model.kind, changed.seed) == (0.5, "linear", 4)
    assert (changed.schedule.kind, RECIPE.seed) == (RECIPE.schedule.kind, 0)
    assert registry.override(RECIPE, {"duration.steps": 7}).duration == Duration(steps=7)
    assert registry.override(RECIPE, {"evaluate_every.steps": 7}).evaluate_every == Duration(steps=7)
    assert registry.override(RECIPE, {"duration": {"steps": 9}}).duration == Duration(steps=9)


def test_a_new_kind_drops_the_settings_that_it_has_no_use_for_and_no_others() -> None:
    first = {"schedule.kind": "one_cycle", "schedule.final": 0.2, "model.activation": "gelu", "model.width": 2}
    first |= {"model.kind": "resnet", "optimizer.nesterov": False, "optimizer.momentum": 0.5}
    recipe = registry.override(RECIPE, first)
    other = {"schedule.kind": "constant", "optimizer.kind": "adam", "model.kind": "mobilenetv2"}
    changed = registry.override(recipe, other)
    assert (changed.schedule.final, changed.optimizer.nesterov, changed.model.activation) == (0.0, None, "relu")
    assert (changed.optimizer.momentum, changed.model.width) == (None, 2)
    assert changed.schedule.learning_rate == 0.001, "Adam's own"
    phase = PhaseSettings(from_epoch=1, changes={"optimizer.kind": "adam"})
    _, (_, later) = recipe.changed(phases=(phase,), duration=Duration(epochs=2)).by_phase
    assert later.optimizer.nesterov is None
    with pytest.raises(SettingsError, match=r"recipe tiny: schedule: got final=0\.3 with kind=constant, expected"):
        registry.override(recipe, {"schedule.kind": "constant", "schedule.final": 0.3})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule.decay_every.share": 0.1, "schedule.decay_every.epochs": 2},
            "schedule.decay_every.share=0.1 vs schedule.decay_every.epochs=2: give one of them",
        ),
        ({"schedule.learning_rat": 1}, r"no 'schedule.learning_rat'; did you mean 'schedule.learning_rate'\?"),
        ({"batch_size": 0}, "recipe tiny: batch_size = 0: Input should be greater than or equal to 1"),
        ({"model.kind": "vgg"}, "recipe tiny: there is no model 'vgg'; known: linear, resnet, mobilenetv2"),
        # A value of several forms names all of them.
        ({"task.class_weights": "balancd"}, "class_weights = 'balancd': Input should be 'balanced' or a valid"),
        ({"seed": 3, "schedule.kind": "plateau"}, "^recipe tiny: schedule.kind=plateau vs validation_share=0: "),
        ({"task.side": 64}, "a recipe has no 'task.side'"),
    ],
)
def test_an_override_that_cannot_be_is_one_clear_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        registry.override(RECIPE, changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "source", "name"),
    [
        (None, "/data/Ants & Bees/", "images.ants-bees"),
        (None, "gs://bucket/photos/labels.csv", "images.photos"),
        (None, "/data/images", "images"),
        (None, "/data/Sommervögel, Été 2", "images.sommervoegel-ete-2"),
        (None, f"/data/{unicodedata.normalize('NFD', 'Brånäs')}", "images.branaes"),
        ("ants", "/data/蟻", "images.ants"),
    ],
)
def test_data_of_ones_own_are_named(own: str | None, source: str, name: str) -> None:
    recipe = registry.for_data(registry.get("images"), own, source)
    assert (recipe.name, recipe.dataset) == (name, name)
    assert registry.get(name) == recipe
    assert datasets.find(name).base == "images"


@pytest.mark.parametrize("folder", ["蟻2", "!", "ants-0123456789ab"])
def test_a_folder_whose_name_would_lose_a_letter_or_be_a_run_s_needs_a_name(folder: str) -> None:
    with pytest.raises(SettingsError, match=rf"folder '{folder}' gives no name .* \(--name NAME, or the recipe images"):
        registry.for_data(registry.get("images"), None, f"/data/{folder}")


def test_only_data_of_ones_own_are_named() -> None:
    assert registry.for_data(registry.get("cifar10"), None, "/data/photos").name == "cifar10"
    for recipe, name, words in (
        ("cifar10", "x", r"'x' vs cifar10, the data set of the recipe cifar10"),
        ("images.x", "y", r"'y' vs images.x, the data set of the recipe images.x"),
        ("images", "A b", r"the name 'A b' vs small letters, digits, - and _"),
    ):
        with pytest.raises(SettingsError, match=words):
            registry.for_data(registry.get(recipe), name, "")
    assert not registry.has("images.x-0123456789ab"), "a run's name"
    with pytest.raises(SettingsError, match=r"no recipe 'cifar10.x'"):
        registry.get("cifar10.x")
