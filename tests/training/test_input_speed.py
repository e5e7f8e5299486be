"""The benchmark of the input: whichever stage is slow is the one that is named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_dataset import publish_dataset, small_recipe

from podline import notebook
from podline.errors import SettingsError, StoreError
from podline.input import augmentation
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings
from podline.stages.tools import InputSpeed
from podline.training import input_speed

# So much longer than anything that the small data set's stages do, that no hiccup of the machine makes up for it.
SLOW = 0.3
RECIPE = small_recipe(duration=Duration(steps=30), augmentation=AugmentationSettings(flip=True))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root)
    return root


def measure(root: Path) -> InputSpeed:
    return notebook.benchmark_input(RECIPE, str(root), seconds=0.02)


def slowed(function: Any) -> Any:
    def wait_and_call(*arguments: Any, **keywords: Any) -> Any:
        time.sleep(SLOW)
        return function(*arguments, **keywords)

    return wait_and_call


def test_a_slow_augmentation_is_named_and_advice_given(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "augment", slowed(augmentation.augment))
    found = measure(root)
    assert (found.bottleneck, found.first_pass_bottleneck, found.feeds) == ("augment", "augment", False)
    assert found.waiting > 0.5
    assert "Augmentation is slow" in str(found)
    [augment] = [stage for stage in found.stages if stage.name == "augment"]
    assert augment.milliseconds >= 1000 * SLOW
    assert augment.examples_per_second <= 8 / SLOW


def slow_hand_over(batches: Any) -> Iterator[Any]:
    for batch in batches:
        time.sleep(SLOW)
        yield batch


Stages = input_speed.Stages


def _with_slow_hand_over(stages: Stages) -> Stages:
    return replace(stages, hand_over=lambda dataset: slow_hand_over(stages.hand_over(dataset)))


def _with_slow_disk(stages: Stages) -> Stages:
    seen: set[int] = set()

    def read(number: int) -> input_speed.Raw:
        time.sleep(0 if number in seen else SLOW)
        seen.add(number)
        return stages.read(number)

    return replace(stages, read=read)


@pytest.mark.parametrize(
    ("change", "fits", "bottleneck", "first_pass"),
    [
        (_with_slow_hand_over, True, "hand-over", "hand-over"),
        (_with_slow_disk, True, None, "disk"),
        (_with_slow_disk, False, "disk", "disk"),  # in every pass, as memory cannot hold the data
    ],
)
def test_any_other_slow_stage_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: Any, fits: bool, bottleneck: str | None, first_pass: str
) -> None:
    stages_of = input_speed.stages_of
    monkeypatch.setattr(input_speed, "stages_of", lambda *given: change(stages_of(*given)))
    monkeypatch.setattr(input_speed, "_fits_in_memory", lambda _split: fits)
    found = measure(root)
    assert found.first_pass_bottleneck == first_pass
    assert found.bottleneck == bottleneck or (bottleneck is None and found.bottleneck != "disk")
    assert f"bottleneck is {first_pass}" in str(found) or f"the input is {first_pass}" in str(found)


def test_a_copy_that_was_slow_because_the_machine_was_busy_is_measured_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(stages: Stages) -> Stages:
        ways = iter((_with_slow_hand_over(stages), stages))
        return replace(stages, hand_over=lambda data: next(ways).hand_over(data))

    stages_of = input_speed.stages_of
    monkeypatch.setattr(input_speed, "stages_of", lambda *given: once(stages_of(*given)))
    [hand_over] = [stage for stage in measure(root).stages if stage.name == "hand-over"]
    assert hand_over.milliseconds < 1000 * SLOW / 2


def test_an_input_that_takes_the_cores_from_the_step_is_told_of(root: Path) -> None:
    beside = measure(root).model_copy(update={"feeds": True, "model": 100.0, "training": 50.0})
    assert "2.0 × as long" in str(beside)
    assert "× as long" not in str(beside.model_copy(update={"training": 95.0}))


def test_what_cannot_be_measured_says_what_to_type(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no layer with weights starts with 'head'"):
        notebook.benchmark_input(RECIPE.model_copy(update={"trainable_layers": ("head",)}), str(root), seconds=0.02)
    with pytest.raises(StoreError, match="make one with `podline convert sample"):
        measure(tmp_path)
