"""The benchmark of the input: whichever stage is slow is the one that is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT, publish_dataset, small_recipe

from podline import notebook
from podline.data.reader import SplitReader
from podline.errors import SettingsError, StoreError
from podline.input import augmentation
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, ModelSettings
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


def test_a_slow_reader_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitReader, "gather", slowed(SplitReader.gather))
    found = measure(root)
    assert (found.bottleneck, found.first_pass_bottleneck) == ("read", "read")
    assert not found.feeds
    assert found.waiting > 0.5


def test_a_slow_augmentation_is_named_and_advice_given(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "augment", slowed(augmentation.augment))
    found = measure(root)
    assert (found.bottleneck, found.first_pass_bottleneck) == ("augment", "augment")
    assert found.waiting > 0.5
    text = str(found)
    assert "The bottleneck of the input is augment." in text
    assert "does not feed the model" in text
    assert "Augmentation is slow" in text
    [augment] = [stage for stage in found.stages if stage.name == "augment"]
    assert augment.milliseconds >= 1000 * SLOW
    assert augment.examples_per_second <= 8 / SLOW


def slow_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    def wait(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(SLOW), [], [])]):
            return {name: tf.identity(value) for name, value in batch.items()}

    return dataset.map(wait)


def slow_hand_over(batches: Any) -> Iterator[Any]:
    for batch in batches:
        time.sleep(SLOW)
        yield batch


def _with_slow_batch(stages: input_speed.Stages) -> input_speed.Stages:
    return replace(stages, batch=lambda take: slow_batches(stages.batch(take)))


def _with_slow_hand_over(stages: input_speed.Stages) -> input_speed.Stages:
    return replace(stages, hand_over=lambda dataset: slow_hand_over(stages.hand_over(dataset)))


def _with_slow_disk(stages: input_speed.Stages) -> input_speed.Stages:
    seen: set[int] = set()

    def read(number: int) -> input_speed.Raw:
        time.sleep(0 if number in seen else SLOW)
        seen.add(number)
        return stages.read(number)

    return replace(stages, read=read)


@pytest.mark.parametrize(
    ("change", "bottleneck", "first_pass"),
    [
        (_with_slow_batch, "batch", "batch"),
        (_with_slow_hand_over, "hand-over", "hand-over"),
        (_with_slow_disk, None, "disk"),
    ],
)
def test_any_other_slow_stage_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: Any, bottleneck: str | None, first_pass: str
) -> None:
    stages_of = input_speed.stages_of
    monkeypatch.setattr(input_speed, "stages_of", lambda *given: change(stages_of(*given)))
    found = measure(root)
    assert found.first_pass_bottleneck == first_pass
    assert found.bottleneck == bottleneck or (bottleneck is None and found.bottleneck != "disk")
    assert f"bottleneck is {first_pass}" in str(found) or f"the input is {first_pass}" in str(found)


def test_data_that_memory_cannot_hold_come_from_the_disk_in_every_pass(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages_of = input_speed.stages_of
    monkeypatch.setattr(input_speed, "stages_of", lambda *given: _with_slow_disk(stages_of(*given)))
    monkeypatch.setattr(input_speed, "_fits_in_memory", lambda _split: False)
    assert measure(root).bottleneck == "disk"


def test_a_notebook_gets_a_table(root: Path) -> None:
    found = measure(root)
    assert found.dataset == f"datasets/sample/{FINGERPRINT}"
    expected = ["disk", "read", "augment", "batch", "hand-over", "together", "model", "training"]
    rows = [line.split() for line in found.lines()[1:9]]
    assert [row[0] for row in rows] == expected
    assert min(float(row[1].replace(",", "")) for row in rows) > 0
    assert found._repr_html_().startswith("<pre>stage ")
    assert InputSpeed.model_validate_json(found.model_dump_json()) == found


@pytest.mark.slow
def test_on_one_core_a_slow_step_is_not_waiting_for_input(root: Path) -> None:
    recipe = RECIPE.model_copy(update={"model": ModelSettings(kind="resnet"), "batch_size": 64})
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from podline import notebook; from podline.recipes.settings import Recipe\n"
        f"recipe = Recipe.model_validate_json({recipe.model_dump_json()!r})\n"
        f"print(notebook.benchmark_input(recipe, {str(root)!r}, seconds=0.2).model_dump_json())"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    found = InputSpeed.model_validate_json(done.stdout.splitlines()[-1])
    assert found.waiting < 0.5
    assert found.model < 10 * found.training


def test_an_input_that_takes_the_cores_from_the_step_is_told_of(root: Path) -> None:
    found = measure(root).model_copy(update={"feeds": True, "model": 100.0, "training": 50.0})
    assert "2.0 × as long" in str(found)
    assert "× as long" not in str(found.model_copy(update={"training": 95.0}))


def test_the_model_beside_it_trains_the_layers_of_the_recipe(root: Path) -> None:
    with pytest.raises(SettingsError, match="no layer with weights starts with 'head'"):
        notebook.benchmark_input(RECIPE.model_copy(update={"trainable_layers": ("head",)}), str(root), seconds=0.02)


def test_without_a_data_set_it_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make one with `podline convert sample"):
        measure(tmp_path)


def test_half_of_memory_or_of_the_container_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(input_speed, "_CONTAINERS_LIMIT", tmp_path / "limit")
    for limit in (None, "max\n", f"{2 * physical}\n"):
        if limit:
            (tmp_path / "limit").write_text(limit)
        assert input_speed._fits_in_memory(physical // 2)
        assert not input_speed._fits_in_memory(physical // 2 + 1)
    (tmp_path / "limit").write_text("1000\n")
    assert input_speed._fits_in_memory(500)
    assert not input_speed._fits_in_memory(501)
