"""docs/how-to/recipe.md as its reader would follow it: the page's own recipe, as a file, by name, and as a run."""

from __future__ import annotations

import os
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.extending import answer, code_of

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.recipes import registry
from podline.tasks.forms import FinderParameters, TrainingForm

RECIPE = "from podline.recipes.settings import *\nRECIPE = Recipe({})"
SHORT = ("--steps", "4", "--set", "model.width=0.25")


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    """The page's recipe, in a file."""
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
    assert "`podline runs list` shows the runs that there are" in error


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
        ("", r"my_recipe.py holds no RECIPE vs a Recipe: write RECIPE = "),
        ("RECIPE = 3", r"my_recipe.py holds a int vs a Recipe"),
        ("import", r"my_recipe.py: SyntaxError: invalid syntax"),
        (
            RECIPE.format("name='a', dataset='sample', batch_size=0"),
            r"my_recipe.py: batch_size = 0: Input should be ",
        ),
        (RECIPE.format("name='x', dataset='mnits'"), "recipe x: there is no data set 'mnits'; did you mean 'mnist'"),
        (
            RECIPE.format("name='mnist', dataset='mnist'"),
            r"my_recipe.py: the recipe is named 'mnist', like another r",
        ),
    ],
)
def test_a_file_that_cannot_be_is_one_clear_line(recipe_file: Path, text: str, message: str) -> None:
    recipe_file.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        registry.get(str(recipe_file))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_named_by_a_relative_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"gone\.py cannot be read: No such file"):
        registry.get("/tmp/gone.py")
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
