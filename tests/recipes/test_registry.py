"""Recipes are found by name, in a file or a package, and overridden; what cannot be is refused in one line."""

from __future__ import annotations

import importlib
import os
import re
import unicodedata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.extending import answer, code_of

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.recipes import datasets, registry
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.recipes.settings import Recipe
from podline.tasks.forms import FinderParameters, TrainingForm


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
        ({"model.kind": []}, r"recipe tiny: model.kind = \[\]: Input should be a valid string"),
        ({"task.kind": 5}, "recipe tiny: task: got kind=5, expected the name of a kind of task"),
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
        (None, "gs://bucket/photos/labels.csv/", "images.labels-csv"),
        (None, "gs://bucket/photos/birds.2024", "images.birds-2024"),
        (None, "gs://bucket/photos/birds.2024/", "images.birds-2024"),
        (None, "/elsewhere/photos/birds.v2.TAR.GZ", "images.birds-v2"),
        (None, "/elsewhere/photos/birds.parquet", "images.photos"),
        (None, "gs://bucket/photos.v2", "images.photos-v2"),
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


@pytest.mark.parametrize("source", [".", "labels.csv", "./labels.csv", "../photos"])
def test_a_relative_source_is_named_by_the_folder_that_it_is_in(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path / "photos")
    assert registry.for_data(registry.get("images"), None, source).name == "images.photos"


@pytest.mark.parametrize("folder", ["蟻2", "!", "ants-0123456789ab"])
def test_a_folder_whose_name_would_lose_a_letter_or_be_a_run_s_needs_a_name(folder: str) -> None:
    with pytest.raises(SettingsError, match=rf"folder is '{folder}': .* \(--name NAME, or the recipe images"):
        registry.for_data(registry.get("images"), None, f"/data/{folder}")


def test_only_data_of_ones_own_are_named() -> None:
    assert registry.for_data(registry.get("cifar10"), None, "/data/photos").name == "cifar10"
    for recipe, name, words in (
        ("cifar10", "x", r"'x' for cifar10, the data set of the recipe cifar10"),
        ("images.x", "y", r"'y' for images.x, the data set of the recipe images.x"),
        ("images", "A b", r"the name 'A b', expected small letters, digits, - and _"),
    ):
        with pytest.raises(SettingsError, match=words):
            registry.for_data(registry.get(recipe), name, "")
    assert not registry.has("images.x-0123456789ab"), "a run's name"
    with pytest.raises(SettingsError, match=r"no recipe 'cifar10.x'"):
        registry.get("cifar10.x")


SOURCE = "from podline.recipes.settings import *\nRECIPE = Recipe({})"
SHORT = ("--steps", "4", "--set", "model.width=0.25")


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    file = tmp_path / "my_recipe.py"
    file.write_text(code_of("## A recipe", "python"))
    return file


@pytest.mark.usefixtures("few_layers", "parsed_here")
def test_a_recipe_in_a_file_is_trained_and_its_run_needs_the_file_no_more(recipe_file: Path, answered: Any) -> None:
    answered("convert", "./my_recipe.py", "--source", "drawn")
    run = answered("train", "./my_recipe.py", *SHORT)["run"]
    recipe_file.unlink()
    assert re.fullmatch(r"wide-sample-[0-9a-f]{12}", run)
    again = answer(recipe_file.parent, None, "train", run)  # by a process that has never seen the file
    assert (again["run"], again["reused"]) == (run, True)
    error = answered("evaluate", run, code=7)["error"]["message"]  # it has learned nothing in so few steps
    assert run in error
    assert answered("report", run)["html"] == f"runs/{run}/report.html"
    assert answered("train", run, "--seed", "1", "--show-spec")["recipe"]["seed"] == 1
    error = answered("train", "wide-sample-0123456789ab", code=5)["error"]["message"]
    assert "`podline runs list` shows all runs" in error


def test_the_setting_makes_it_known_by_name_and_offers_it_in_the_forms(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_RECIPES", str(recipe_file))
    assert registry.get("wide-sample").model.width == 1.0
    for form in (TrainingForm, FinderParameters):
        assert "wide-sample" in form.model_json_schema()["properties"]["recipe"]["enum"]
    assert TrainingForm(recipe="wide-sample").training_recipe() == registry.get("wide-sample")


def test_a_file_that_was_changed_is_read_again(recipe_file: Path) -> None:
    assert registry.get(str(recipe_file)).batch_size == 64
    recipe_file.write_text(recipe_file.read_text().replace("batch_size=64", "batch_size=32"))
    os.utime(recipe_file, ns=(1, 1))
    assert registry.get(str(recipe_file)).batch_size == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"my_recipe.py has no RECIPE; write RECIPE = "),
        ("RECIPE = 3", r"my_recipe.py has RECIPE of type int; write RECIPE = "),
        ("import", r"my_recipe.py: SyntaxError: invalid syntax"),
        (
            SOURCE.format("name='a', dataset='sample', batch_size=0"),
            r"my_recipe.py: batch_size = 0: Input should be ",
        ),
        (SOURCE.format("name='x', dataset='mnits'"), "recipe x: there is no data set 'mnits'; did you mean 'mnist'"),
        (
            SOURCE.format("name='mnist', dataset='mnist'"),
            r"my_recipe.py: the recipe is named 'mnist', like another r",
        ),
    ],
)
def test_a_file_that_cannot_be_is_one_clear_line(recipe_file: Path, text: str, message: str) -> None:
    recipe_file.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        registry.get(str(recipe_file))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_named_by_a_relative_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=r"gone\.py cannot be read: No such file"):
        registry.get(str(tmp_path / "gone.py"))
    monkeypatch.setenv("PODLINE_RECIPES", "recipes/mine.py")
    with pytest.raises(SettingsError, match=r"PODLINE_RECIPES: .*recipes/mine.py is a relative path; give an absolute"):
        registry.names()


def test_an_installed_package_adds_recipes(recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(recipe_file.parent)
    points = [EntryPoint("wide-sample", "my_recipe:RECIPE", registry.ENTRY_POINTS)]
    monkeypatch.setattr(entry_points, "installed", lambda group: points if group == registry.ENTRY_POINTS else [])
    assert registry.names()[-1] == "wide-sample"
    assert registry.get("wide-sample").batch_size == 64
    points[0] = EntryPoint("other", "my_recipe:RECIPE", registry.ENTRY_POINTS)
    with pytest.raises(SettingsError, match="got the name 'wide-sample', expected 'other'"):
        registry.get("other")
    points[0] = EntryPoint("wide-sample", "my_recipe:NOTHING", registry.ENTRY_POINTS)
    with pytest.raises(SettingsError, match=r"my_recipe:NOTHING of my_recipe\): AttributeError"):
        registry.get("wide-sample")
