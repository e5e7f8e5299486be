"""Values of a recipe that change from an epoch on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.settings import Recipe

PHASES = [
    {"from_epoch": 1, "changes": {"batch_size": 256, "optimizer": {"kind": "adam"}, "trainable_layers": [""]}},
    {"from_epoch": 3, "changes": {"schedule.learning_rate": 0.01, "augmentation.also.fog": 0.5}},
]


def test_a_phase_adds_its_changes_to_those_before_it() -> None:
    first = registry.override(registry.get("mnist"), {"trainable_layers": ["classifier"]})
    recipe = registry.override(first, {"phases": PHASES})
    (zero, start), (one, second), (three, third) = recipe.by_phase
    assert (zero, one, three) == (0, 1, 3)
    assert start == first
    assert (second.batch_size, second.optimizer.kind, second.trainable_layers) == (256, "adam", ("",))
    assert second.schedule == first.schedule
    assert (third.batch_size, third.schedule.learning_rate) == (256, 0.01)
    assert third.schedule.kind == first.schedule.kind
    assert third.augmentation.also == {"fog": 0.5}


def test_a_spec_keeps_the_phases() -> None:
    document = registry.override(registry.get("mnist"), {"phases": PHASES}).model_dump(mode="json")
    assert document["phases"] == PHASES
    assert Recipe.model_validate(document).model_dump(mode="json") == document


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([(3, {"batch_size": 8}), (3, {"batch_size": 9})], "epoch 3 is followed by epoch 3"),
        ([(3, {"batch_size": 0})], "from epoch 3: batch_size: Input should be greater than or equal to 1"),
        ([(3, {"seed": 1})], "seed cannot change during a run; these can: augmentation, batch_size"),
        ([(3, {"optimizer.speed": 1})], "from epoch 3: optimizer.speed: Extra inputs are not permitted"),
        ([(3, {"schedule.kind": "plateau"})], "a plateau is for the whole run"),
        ([(3, {"task.emphasis": 3})], "phases: task.emphasis cannot change"),
        ([(3, {"optimizer.kind": "lionn"})], "there is no optimizer 'lionn'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(phases: list[tuple[int, dict[str, Any]]], words: str) -> None:
    given = [{"from_epoch": epoch, "changes": changes} for epoch, changes in phases]
    with pytest.raises(SettingsError, match=words):
        registry.override(registry.get("mnist"), {"phases": given, "validation_share": 0.1})


@pytest.mark.parametrize(("epochs", "begins"), [(10, [0, 3, 6]), (2, [0, 1]), (1, [0]), (0.5, [0])])
def test_a_phase_from_a_share_moves_with_the_length(epochs: float, begins: list[int]) -> None:
    phases = [{"from_share": share, "changes": {"augmentation.pad": round(10 * share)}} for share in (0.3, 0.6)]
    recipe = Recipe.model_validate({"name": "r", "dataset": "d", "phases": phases, "duration": {"epochs": epochs}})
    assert [epoch for epoch, _ in recipe.by_phase] == begins
    assert recipe.by_phase[-1][1].augmentation.pad == 6


def test_a_share_needs_a_length_in_epochs_and_stands_alone() -> None:
    given: dict[str, Any] = {"name": "r", "dataset": "d", "duration": {"steps": 9}}
    shared = {"from_share": 0.5, "changes": {"augmentation.pad": 1}}
    with pytest.raises(ValidationError, match=r"from_share=0\.5 for a run of 9 steps, expected a length in epochs"):
        Recipe.model_validate(given | {"phases": [shared]})
    with pytest.raises(ValidationError, match=r"from_epoch=2 and from_share=0\.5, expected exactly one"):
        Recipe.model_validate(given | {"phases": [shared | {"from_epoch": 2}]})
