from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, drawn, publish_dataset

from podline import notebook
from podline.errors import SettingsError
from podline.input.augmentation import augment
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, Recipe

TRAIN, SEED = 48, 3
RECIPE = Recipe(
    name="t",
    dataset="sample",
    batch_size=16,
    duration=Duration(epochs=2),
    augmentation=AugmentationSettings(pad=2, flip=True),
    seed=SEED,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    publish_dataset(root, train=TRAIN, test=16)
    return root


def test_an_epoch_of_batches_has_every_example_once_as_it_is_stored(root: Path) -> None:
    examples = drawn(TRAIN, 0)
    batches = [notebook.batch(RECIPE, str(root), step, fingerprint=FINGERPRINT) for step in range(3)]
    assert sorted(np.concatenate([batch.ids for batch in batches]).tolist()) == list(range(TRAIN))
    for step, batch in enumerate(batches):
        assert (batch.step, batch.steps, batch.epoch) == (step, 6, 0)
        for name in ("image", "label"):
            np.testing.assert_array_equal(batch.stored[name], examples[name][batch.ids])


def test_the_model_is_fed_with_what_augmentation_makes_of_them_in_that_epoch(root: Path) -> None:
    batch = notebook.batch(RECIPE, str(root), 4)
    assert batch.epoch == 1
    grey = np.zeros(3, np.uint8)  # nothing is cut out
    expected = augment(batch.stored["image"], batch.ids, RECIPE.augmentation, SEED, 1, grey)
    np.testing.assert_array_equal(batch.augmented["image"], expected)
    np.testing.assert_array_equal(batch.augmented["label"], batch.stored["label"])
    assert not np.array_equal(batch.augmented["image"], batch.stored["image"])


@pytest.mark.parametrize("step", [-1, 6])
def test_a_step_that_there_is_not_is_refused(root: Path, step: int) -> None:
    with pytest.raises(SettingsError, match=rf"step={step} vs 6 steps of t, from 0 to 5"):
        notebook.batch(RECIPE, str(root), step)
