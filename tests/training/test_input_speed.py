"""The benchmark of the input names the stage that is slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from small_dataset import publish_dataset, small_recipe

from podline import notebook
from podline.base.errors import SettingsError, StoreError
from podline.input import augmentation
from podline.input.pipeline import TrainingInput
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings
from podline.stages.tools import InputSpeed

# So much longer than anything that the small data set's stages do, that no hiccup of the machine makes up for it.
SLOW = 0.15
RECIPE = small_recipe(duration=Duration(steps=30), augmentation=AugmentationSettings(flip=True))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root)
    return root


def measure(root: Path) -> InputSpeed:
    return notebook.benchmark_input(RECIPE, str(root), seconds=0.02)


@pytest.mark.parametrize(
    ("owner", "name", "stage", "advice"),
    [(augmentation, "augment", "augment", "use less of it"), (TrainingInput, "read", "read", "a faster disk")],
)
def test_a_slow_stage_is_named_and_advice_given(
    root: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, stage: str, advice: str
) -> None:
    quick = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: time.sleep(SLOW) or quick(*given, **named))
    found = measure(root)
    assert (found.bottleneck, found.feeds) == (stage, False)
    assert found.waiting > 0.5
    assert advice in str(found)
    [slow] = [one for one in found.stages if one.name == stage]
    assert (slow.milliseconds >= 1000 * SLOW, slow.examples_per_second <= 8 / SLOW) == (True, True)


def test_what_cannot_be_measured_says_what_to_type(root: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no layer with weights starts with 'head'"):
        notebook.benchmark_input(RECIPE.model_copy(update={"trainable_layers": ("head",)}), str(root), seconds=0.02)
    with pytest.raises(StoreError, match="make one with `podline convert sample"):
        measure(tmp_path)
