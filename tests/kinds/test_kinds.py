"""A kind of task is one class, and no other module asks which kind a run is."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from podline.base import entry_points
from podline.base.errors import ArtifactError, SettingsError
from podline.contract import kind
from podline.contract.kind import kind_named, kind_of
from podline.kinds.pose.settings import PoseSettings
from podline.recipes import registry
from podline.recipes.kind_table import all_facts, facts_by_measure, read_evaluation, text_targets
from podline.recipes.measures import SHIPPED
from podline.recipes.settings import Recipe
from podline.recipes.task import KINDS
from podline.store.folder import FolderStore

PROJECT = Path(__file__).parents[2]
PRODUCT = ("podline", "tasks", "beam_jobs", "flows", "deployments")
NAMED = re.compile(r"[\"'](pose|classification)[\"']|podline\.kinds\.(pose|classification|labels)[\w.]*(:\w| import)")


def test_no_other_module_names_a_kind() -> None:
    files = {file for top in PRODUCT for file in (PROJECT / top).rglob("*.py") if file.resolve() == file}
    names = {str(file.relative_to(PROJECT)): file for file in files}
    naming = {name for name, file in names.items() if NAMED.search(file.read_text())}
    # The kind of old documents, and what is shipped.
    others = {"podline/documents/manifest.py", "podline/recipes/shipped.py"}
    assert [name for name in naming - others if not name.startswith("podline/kinds/")] == []


def test_each_recipe_has_its_kind_and_each_kind_a_measure_that_is_known() -> None:
    assert {kind_of(registry.get(name)).name for name in registry.names()} == {facts.name for facts in all_facts()}
    assert {facts.measure for facts in all_facts()} < {measure.name for measure in SHIPPED}
    assert all(facts_by_measure(facts.measure) is facts for facts in all_facts())


def test_the_section_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingsError, match="recipe sample: got the kind classification, expected pose"):
        PoseSettings.of(registry.get("sample"))
    with pytest.raises(SettingsError, match="the kind pose has no targets as text"):
        text_targets("pose")


def test_a_recipe_whose_kind_is_gone_can_be_read_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    later = {"phases": [{"from_epoch": 1, "changes": {"task.threshold": 0.4}}]}
    depths = {"name": "x", "dataset": "gone", "task": {"kind": "depths", "threshold": 0.5}}
    recipe = Recipe.model_validate(depths | later)
    assert recipe.model_dump(mode="json")["task"] == depths["task"]
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe
    assert recipe.by_phase[1][1].task.model_dump()["threshold"] == 0.4
    assert recipe.image_augmentation == recipe.augmentation
    with pytest.raises(SettingsError, match="there is no kind of task 'depths'"):
        registry.override(recipe, {"optimizer.kind": "adam"})
    point = EntryPoint("depths", "pathlib:Path", KINDS.group)
    monkeypatch.setattr(entry_points, "installed", lambda group: [point] if group == KINDS.group else [])
    with pytest.raises(SettingsError, match=r"depths: got .*Path.*, expected a podline\.recipes\..*KindFacts"):
        kind_named("depths")


def test_a_kind_without_one_of_its_methods_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = replace(all_facts()[0], kind="podline.contract.kind:Kind")
    monkeypatch.setattr(kind, "facts_named", lambda _: unfinished)
    with pytest.raises(SettingsError, match=r"pose.*: .*abstract method"):
        kind_named.__wrapped__("pose")


def test_an_evaluation_of_no_known_kind_is_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.publish_json("runs/r/evaluation.json", {"kind": "depth"})
    with pytest.raises(ArtifactError, match=r"evaluation\.json: got kind=depth, expected classification, labels, pose"):
        read_evaluation(store, "runs/r")
