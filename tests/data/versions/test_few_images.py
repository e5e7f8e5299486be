"""The values for few images: chosen once at the first conversion of a name, under what the user chooses."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from drawn_images import as_folders, drawn, encoded

from podline.base.errors import SettingsError
from podline.base.progress import Event
from podline.documents.versions import FirstImages, Version, first_images, publish_version
from podline.recipes import registry
from podline.recipes.published_weights import PUBLISHED
from podline.settings.machine import Settings
from podline.stages.from_recipe import few_in_words, for_first_images, settled
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.tasks.forms import TrainingForm, TrainingGroup
from podline.tasks.sources import conversion

RECIPE = registry.get("images.photos")
LITE = PUBLISHED["efficientnet-lite0"]


def pictures(folder: Path, side: int) -> Path:
    """Forty pictures of two classes."""
    classes = {
        name: {f"{number}.png": encoded(drawn(100 * at + number, (side, side - 9)), "PNG") for number in range(20)}
        for at, name in enumerate(("ant", "bee"))
    }
    return as_folders(folder / "photos", classes)


def side_of(store: Store, source: Path, *assignments: str, told: list[Event] | None = None) -> int:
    """Return the side of the records of a run's conversion."""
    group = TrainingGroup(assignments=assignments)
    form = TrainingForm(recipe="images", source=str(source), training=group)
    spec = conversion(form, store, Settings(), [].append if told is None else told.append)
    assert spec.dataset == RECIPE.dataset
    return spec.settings.model_dump()["side"]


def test_a_name_keeps_the_choice_of_its_first_conversion(tmp_path: Path) -> None:
    store, told = open_store(str(tmp_path / "root")), list[Event]()
    small, large = pictures(tmp_path / "small", 40), pictures(tmp_path / "large", 180)
    assert side_of(store, small, told=told) == 64, "too small to gain from larger records"
    assert side_of(store, large, told=told) == 64, "the first conversion has decided"
    assert settled(store, RECIPE).model == RECIPE.model
    assert not told
    other = open_store(str(tmp_path / "other"))
    assert side_of(other, large, told=told) == side_of(other, small, told=told) > 64
    [line] = told
    assert "model.weights=imagenet" in line["message"]
    assert settled(other, RECIPE).model.weights == "imagenet"


def test_a_user_s_network_and_side_come_first(tmp_path: Path) -> None:
    store, large = open_store(str(tmp_path / "root")), pictures(tmp_path, 180)
    assert side_of(store, large, "model.kind=resnet") == 64
    assert side_of(store, large, "conversion.side=32") == 32
    assert first_images(store, "images.photos") is None, "nothing was left to choose"
    assert side_of(store, large, "conversion.side=96", "batch_size=7") == 96
    found = first_images(store, "images.photos")
    changed = registry.override(RECIPE, {"batch_size": 7, "duration.steps": 9})
    trained = for_first_images(changed, found)
    assert (trained.batch_size, trained.duration.steps, trained.model.weights) == (7, 9, "imagenet")
    assert (trained.few, trained.phases) == ((), ())
    rated = for_first_images(registry.override(RECIPE, {"schedule.learning_rate": 0.07}), found)
    assert {phase.schedule.learning_rate for _, phase in rated.by_phase} == {0.07}


def test_a_pose_network_s_trunk_and_width_choose_the_network() -> None:
    """Other values of the network go along with those for few images; a user's side of the records stays."""
    poses, found = registry.get("keypoints.mice"), FirstImages(images=40, side=640)
    chosen = for_first_images(registry.override(poses, {"task.model.features": 48, "task.side": 128}), found)
    assert chosen.pretrained
    task = chosen.task.model_dump()
    assert (task["model"]["features"], task["side"], len(chosen.phases)) == (48, 128, 1)
    for own in ({"task.model.trunk": "mobilenetv2"}, {"task.model.width": 0.5}):
        assert for_first_images(registry.override(poses, own), found).pretrained is None
    drawn = FirstImages(images=600, side=320)
    assert for_first_images(registry.get("coco_pose"), drawn).pretrained is None


def test_without_the_package_nothing_is_chosen_or_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: ())
    store, large = open_store(str(tmp_path / "root")), pictures(tmp_path, 180)
    with pytest.raises(SettingsError, match=rf"not installed: {LITE.source}; .* install .*, or .*weights=none$"):
        side_of(store, large)
    assert not [name for name in store.list("") if not name.startswith(".podline")]
    assert side_of(store, large, "model.weights=none") == 64


def test_data_converted_before_keep_the_recipe_s_own_values(tmp_path: Path) -> None:
    store, large = open_store(str(tmp_path / "root")), pictures(tmp_path, 180)
    publish_version(store, "images.photos", Version(number=1, fingerprint="a" * 16, content="a" * 16))
    assert side_of(store, large) == 64


@pytest.mark.parametrize("few", RECIPE.few, ids=lambda few: str(few.images))
def test_each_choice_is_a_recipe_that_can_be_cut_short(few) -> None:
    found = FirstImages(images=few.images, side=few.side)
    recipe = for_first_images(RECIPE, found)
    assert few_in_words(RECIPE, few.images, few.side)
    phases = 2 if few.images > 300 else 1
    assert len(recipe.by_phase) == len(registry.override(recipe, {"duration.epochs": 2}).by_phase) == phases
