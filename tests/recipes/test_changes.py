"""Values that change by epoch."""

from __future__ import annotations

from typing import Any

import pytest

from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.changes import ByEpoch
from podline.recipes.settings import AugmentationSettings, ByEpochSettings, Recipe


def test_in_steps_a_value_stays_until_the_next_and_after_the_last() -> None:
    changes = ByEpoch[int](at=((2, 16), (5, 32)))
    assert [changes.value(8, epoch) for epoch in (0, 1, 1.99, 2, 4, 5, 99)] == [8, 8, 8, 16, 16, 32, 32]


def test_on_a_line_it_moves_from_the_recipes_own() -> None:
    changes = ByEpoch[float](at=((2, 0.5), (4, 0.0)), between="linear")
    assert [changes.value(1.0, epoch) for epoch in (0, 1, 2, 3, 4, 9)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]


def test_each_number_of_the_augmentation_moves_and_what_is_no_number_stays() -> None:
    strong = AugmentationSettings(pad=4, flip=True, cutout=10)
    changes = ByEpoch[AugmentationSettings](at=((4, strong),), between="linear")
    values = [changes.value(AugmentationSettings(pad=2), epoch) for epoch in range(5)]
    assert [(value.pad, value.flip, value.cutout) for value in values] == [
        (2, False, 0), (2, False, 2), (3, False, 5), (4, False, 8), (4, True, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": {"at": []}}, "at least 1 item"),
        ({"batch_size": {"at": [[0, 8]]}}, "greater than or equal to 1"),
        ({"batch_size": {"at": [[3, 8], [3, 9]]}}, "epoch 3 is followed by epoch 3"),
        ({"batch_size": {"at": [[3, 8], [2, 9]]}}, "epoch 3 is followed by epoch 2"),
        ({"batch_size": {"at": [[3, 0]]}}, "greater than or equal to 1"),
        ({"batch_size": {"at": [[3, 8]], "between": "linear"}}, "batch_size changes in steps"),
        ({"trainable_layers": {"at": [[3, [""]]], "between": "linear"}}, "trainable_layers changes in steps"),
        ({"learning_rate": {"at": [[3, 0.0]]}}, "greater than 0"),
        ({"dropout": {"at": [[3, 0.1]]}}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ByEpochSettings.model_validate(changes)


def test_the_command_line_can_write_them_and_a_spec_keeps_them() -> None:
    recipe = registry.override(
        registry.get("mnist"),
        {
            "by_epoch.batch_size.at": [[1, 256]],
            "by_epoch.learning_rate.at": [[3, 0.01]],
            "by_epoch.learning_rate.between": "linear",
            "by_epoch.augmentation.at": [[2, {"pad": 4}]],
            "trainable_layers": ["classifier"],
            "by_epoch.trainable_layers.at": [[1, [""]]],
        },
    )
    assert recipe.batch_sizes == (128, 256)
    assert recipe.changing.learning_rate == ByEpoch[float](at=((3, 0.01),), between="linear")
    document = recipe.model_dump(mode="json")
    assert Recipe.model_validate(document) == recipe
    assert Recipe.model_validate(document).model_dump(mode="json") == document
    with pytest.raises(SettingsError, match=r"by_epoch\.batch_size\.at"):
        registry.override(registry.get("mnist"), {"by_epoch.batch_size.at": [[0, 256]]})


def test_in_the_first_epoch_it_is_the_recipe_without_its_changes() -> None:
    recipe = registry.override(registry.get("mnist"), {"by_epoch.batch_size.at": [[1, 256]]})
    assert recipe.at_first == registry.get("mnist")


def test_a_recipe_without_changes_is_called_what_it_was() -> None:
    document = registry.get("mnist").model_dump(mode="json")
    assert not {"by_epoch", "trainable_layers", "annealing"} & document.keys()
