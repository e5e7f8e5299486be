"""Settings of recipes: durations that convert, bounds that refuse."""

from __future__ import annotations

from typing import Any

import pytest

from podline.kinds.pose.settings import PoseAugmentationSettings
from podline.recipes import registry
from podline.recipes.durations import Duration, Part
from podline.recipes.epochs import Epochs
from podline.recipes.settings import PlateauSettings, Recipe
from podline.stages.specs import TrainSpec

EPOCHS = Epochs(8068, 128)  # of 63 steps


@pytest.mark.parametrize(
    ("duration", "steps"),
    [
        (Duration(steps=7), 7),
        (Duration(epochs=2), 126),
        (Duration(epochs=0.5), 32),
        (Duration(epochs=0.001), 1),
        (Duration(epochs=0), 0),
        (Duration(examples=1280), 10),
        (Duration(examples=1), 1),
    ],
)
def test_a_duration_in_steps(duration: Duration, steps: int) -> None:
    assert duration.in_steps(EPOCHS) == steps


@pytest.mark.parametrize(
    ("part", "steps"), [(Part(share=0.2), 40), (Part(share=0), 0), (Part(steps=3), 3), (Part(epochs=1), 63)]
)
def test_a_part_of_a_training_of_200_steps(part: Part, steps: int) -> None:
    assert part.of(200, EPOCHS) == steps


def test_a_length_is_given_once() -> None:
    for given in ({}, {"steps": 1, "epochs": 1}):
        with pytest.raises(ValueError, match="give exactly one of steps, epochs, examples"):
            Duration(**given)
    with pytest.raises(ValueError, match="give exactly one of steps, epochs, examples, share"):
        Part(steps=1, share=0.5)


HELD_OUT = {"validation_share": 0.1}
ADAM_LATER = {"phases": [{"from_epoch": 1, "changes": {"optimizer.kind": "adam"}}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 3}, "Extra inputs are not permitted"),
        ({"name": "a b"}, "should match pattern"),
        ({"dataset": "../up"}, "should match pattern"),
        ({"task": {"label_smoothing": 1.0}}, "less than 1"),
        ({"model": {"kind": "VGG 16"}}, "String should match pattern"),
        ({"model": {"l2": 0.1}}, "give both or neither"),
        ({"schedule": {"kind": "plateau"}}, r"plateau vs validation_share=0: .* give validation_share=0\.1"),
        ({"schedule": {"kind": "cosine", "plateau": {}}}, "kind=cosine has no use for plateau"),
        ({"early_stop": {}}, r"early_stop vs validation_share=0: .* give validation_share=0\.1"),
        ({"keep": "best"}, r"keep=best vs validation_share=0"),
        ({"keep": 0}, "keep"),
        (HELD_OUT | {"annealing": {}, "early_stop": {}}, "annealing vs early_stop"),
        (HELD_OUT | {"annealing": {}, "keep": "best"}, "annealing vs keep=best"),
        (HELD_OUT | ADAM_LATER | {"early_stop": {}}, "from epoch 1: early_stop goes back to earlier states"),
        (HELD_OUT | ADAM_LATER | {"annealing": {}}, "from epoch 1: annealing goes back to earlier states"),
    ],
)
def test_values_that_cannot_be_are_refused_where_they_are_written(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate({"name": "x", "dataset": "sample", **change})


@pytest.mark.parametrize(
    ("recipe", "changes", "absent"),
    [
        ("mnist", {}, {"keep", "validation_share", "phases", "trainable_layers", "annealing"}),
        ("mnist", {"schedule.kind": "plateau", "validation_share": 0.1, "schedule.plateau.factor": 0.5}, {"keep"}),
        ("coco_pose", {}, {"keep", "phases"}),
    ],
)
def test_a_recipe_comes_back_from_its_document_which_leaves_out_what_it_does_not_use(
    recipe: str, changes: dict[str, Any], absent: set[str]
) -> None:
    found = registry.override(registry.get(recipe), changes)
    document = found.model_dump(mode="json")
    assert Recipe.model_validate(document) == found
    assert not absent & document.keys()
    plateau = PlateauSettings(factor=0.5).model_dump() if changes else None
    assert document["schedule"].get("plateau") == plateau, "all its settings, or none"


def test_which_checkpoints_are_kept_is_no_part_of_a_run_s_name() -> None:
    plain, kept = (registry.override(registry.get("mnist"), changes) for changes in ({}, {"keep": "all"}))
    specs = [TrainSpec(root="x", recipe=recipe, fingerprint="y") for recipe in (plain, kept)]
    assert specs[0].run == specs[1].run


POSES = {"name": "x", "dataset": "coco", "task": {"side": 64}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"kind": "classification"}}, "dataset=coco vs task.kind=classification: its kind is pose"),
        ({"dataset": "mnist"}, r"task\.side\n +Extra inputs are not permitted"),
        ({"model": {"kind": "mobilenetv2"}}, "kind pose of dataset=coco has no use for model; there is task.model"),
        ({"augmentation": {"flip": True}}, "has no use for augmentation; there is task.augmentation"),
        ({"loss": {"kind": "focal"}}, "has no use for loss; leave it out"),
        (
            {"phases": [{"from_epoch": 1, "changes": {"augmentation.flip": True}}]},
            "from epoch 1: recipe: the kind pose of dataset=coco has no use for augmentation",
        ),
        ({"early_stop": {"metric": "error"}, "validation_share": 0.1}, "error is 1 - accuracy"),
        ({"task": {"side": 72, "targets": {"stride": 16}}}, "side=72 vs targets.stride=16"),
    ],
)
def test_a_pose_recipe_has_what_poses_need_and_nothing_for_classes(change: dict[str, Any], words: str) -> None:
    assert Recipe.model_validate(POSES).image_augmentation == PoseAugmentationSettings()
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate(POSES | change)


@pytest.mark.parametrize(
    ("duration", "factor", "expected"),
    [
        (Duration(epochs=30), 0.5, "15 epochs"),
        (Duration(epochs=30), 0.05, "1 epoch"),
        (Duration(epochs=30), 0.0201, "0.6 epochs"),
        (Duration(epochs=30), 1e-6, "0.01 epochs"),
        (Duration(steps=700), 3.001, "2,100 steps"),
        (Duration(steps=7), 0.01, "1 step"),
        (Duration(examples=1280), 0.5, "640 examples"),
    ],
)
def test_a_duration_is_scaled_in_its_own_unit(duration: Duration, factor: float, expected: str) -> None:
    assert str(duration.scaled(factor)) == expected
