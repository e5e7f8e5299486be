"""Settings of recipes: durations that convert, bounds that refuse."""

from __future__ import annotations

from typing import Any

import pytest

from podline.kinds.pose.settings import PoseAugmentationSettings, PoseSettings
from podline.recipes import registry
from podline.recipes.durations import Duration, Part
from podline.recipes.epochs import Epochs
from podline.recipes.settings import ModelSettings, PlateauSettings, Recipe, ScheduleSettings
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
        (Duration(examples=0), 0),
    ],
)
def test_a_duration_in_steps(duration: Duration, steps: int) -> None:
    assert duration.in_steps(EPOCHS) == steps


@pytest.mark.parametrize("given", [{}, {"steps": 1, "epochs": 1}, {"examples": 1, "epochs": 1, "steps": 1}])
def test_a_duration_is_given_once(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="give exactly one of steps, epochs, examples"):
        Duration(**given)


@pytest.mark.parametrize(
    ("part", "steps"), [(Part(share=0.2), 40), (Part(share=0), 0), (Part(steps=3), 3), (Part(epochs=1), 63)]
)
def test_a_part_of_a_training_of_200_steps(part: Part, steps: int) -> None:
    assert part.of(200, EPOCHS) == steps


def test_a_part_is_given_once() -> None:
    with pytest.raises(ValueError, match="give exactly one of steps, epochs, examples, share"):
        Part(steps=1, share=0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 0}, "greater than or equal to 1"),
        ({"epochs": 3}, "Extra inputs are not permitted"),
        ({"name": "a b"}, "should match pattern"),
        ({"task": {"label_smoothing": 1.0}}, "less than 1"),
        ({"model": {"kind": "VGG 16"}}, "String should match pattern"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_written(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate({"name": "x", "dataset": "sample", **change})


@pytest.mark.parametrize("settings", [{"l2": 0.1}, {"l2_layers": ("dense",)}])
def test_l2_without_layers_and_layers_without_l2_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give both or neither"):
        ModelSettings(**settings)


def test_a_plateau_decides_by_what_is_held_out() -> None:
    with pytest.raises(ValueError, match=r"plateau vs validation_share=0: .* give validation_share=0\.1"):
        Recipe(name="x", dataset="sample", schedule=ScheduleSettings(kind="plateau"))
    with pytest.raises(ValueError, match="kind=cosine has no use for plateau"):
        ScheduleSettings(kind="cosine", plateau=PlateauSettings())


def test_a_plateau_has_all_its_settings_in_the_spec_and_another_kind_none() -> None:
    changes = {"schedule.kind": "plateau", "validation_share": 0.1, "schedule.plateau.factor": 0.5}
    document = registry.override(registry.get("mnist"), changes).model_dump(mode="json")
    assert document["schedule"]["plateau"] == PlateauSettings(factor=0.5).model_dump()
    assert Recipe.model_validate(document).model_dump(mode="json") == document


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"early_stop": {}}, r"early_stop vs validation_share=0: .* give validation_share=0\.1"),
        ({"keep": "best"}, r"keep=best vs validation_share=0"),
        ({"keep": 0}, "keep"),
        ({"annealing": {}, "early_stop": {}, "validation_share": 0.1}, "annealing vs early_stop"),
        ({"annealing": {}, "keep": "best", "validation_share": 0.1}, "annealing vs keep=best"),
        (
            {
                "early_stop": {},
                "validation_share": 0.1,
                "phases": [{"from_epoch": 1, "changes": {"optimizer.kind": "adam"}}],
            },
            "from epoch 1: early_stop goes back to earlier states",
        ),
    ],
)
def test_an_early_end_and_the_best_checkpoint_need_what_they_decide_by(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate({"name": "x", "dataset": "sample"} | values)


def test_which_checkpoints_are_kept_is_no_part_of_a_run_s_name() -> None:
    plain, kept = (registry.override(registry.get("mnist"), changes) for changes in ({}, {"keep": "all"}))
    specs = [TrainSpec(root="x", recipe=recipe, fingerprint="y") for recipe in (plain, kept)]
    assert specs[0].run == specs[1].run
    assert "keep" not in plain.model_dump(mode="json")


def test_what_a_recipe_does_not_use_is_no_part_of_its_run_s_name() -> None:
    document = registry.get("mnist").model_dump(mode="json")
    assert "validation_share" not in document
    assert "plateau" not in document["schedule"]


POSES = {"name": "x", "dataset": "coco", "task": {"side": 64}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": {"kind": "classification"}}, "dataset=coco vs task.kind=classification: its kind is pose"),
        ({"dataset": "mnist"}, r"task\.side\n +Extra inputs are not permitted"),
        ({"model": {"kind": "mobilenetv2"}}, "kind pose of dataset=coco has no use for model; there is task.model"),
        ({"augmentation": {"flip": True}}, "has no use for augmentation; there is task.augmentation"),
        ({"loss": {"kind": "focal"}}, "has no use for loss; leave it out"),
        ({"task": {"label_smoothing": 0.1}}, r"task\.label_smoothing\n +Extra inputs are not permitted"),
        (
            {"phases": [{"from_epoch": 1, "changes": {"augmentation.flip": True}}]},
            "from epoch 1: recipe: the kind pose of dataset=coco has no use for augmentation",
        ),
        ({"annealing": {"energy": "error"}, "validation_share": 0.1}, "error is 1 - accuracy"),
        ({"early_stop": {"metric": "error"}, "validation_share": 0.1}, "error is 1 - accuracy"),
        ({"task": {"side": 72, "targets": {"stride": 16}}}, "side=72 vs targets.stride=16"),
    ],
)
def test_a_pose_recipe_has_what_poses_need_and_nothing_for_classes(change: dict[str, Any], words: str) -> None:
    assert Recipe.model_validate(POSES).image_augmentation == PoseAugmentationSettings()
    with pytest.raises(ValueError, match=words):
        Recipe.model_validate(POSES | change)


def test_poses_are_no_part_of_a_classifier_s_recipe() -> None:
    plain = Recipe(name="x", dataset="mnist")
    assert "task" not in plain.model_dump(mode="json")
    assert Recipe.model_validate(plain.model_dump(mode="json")) == plain
    assert registry.get("mnist").model_dump(mode="json")["task"] == {"kind": "classification", "label_smoothing": 0.1}
    document = registry.get("coco_pose").model_dump(mode="json")
    assert document["task"]["side"] == PoseSettings.of(registry.get("coco_pose")).side == 256
    assert Recipe.model_validate(document) == registry.get("coco_pose")


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
