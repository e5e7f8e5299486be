from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_cifar import write_raw_cifar
from small_dataset import FINGERPRINT, drawn, publish_dataset, small_recipe

from podline import notebook
from podline.base.errors import SettingsError, StoreError
from podline.input.augmentation import augment
from podline.ledger import ledger
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, Recipe
from podline.store.opening import open_store

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
    for step in (-1, 6):
        with pytest.raises(SettingsError, match=rf"got step={step}, expected 0 to 5, the steps of"):
            notebook.batch(RECIPE, str(root), step)
    calls: dict[str, Callable[[], Any]] = {
        "pictures = 30: .* less than or equal to 20": lambda: notebook.show(RECIPE, str(root), pictures=30),
        "draws = 0: .* greater than or equal to 1": lambda: notebook.show(RECIPE, str(root), draws=0),
        "seconds = 99: ": lambda: notebook.benchmark_input(RECIPE, str(root), seconds=99),
        "steps = 5: ": lambda: notebook.find_learning_rate(RECIPE, str(root), steps=5),
        "got threshold=2, expected 0 to 1": lambda: notebook.predict("sample-0123456789ab", str(root), [], threshold=2),
    }
    for message, call in calls.items():
        with pytest.raises(SettingsError, match=message):
            call()


def test_the_model_is_fed_with_what_augmentation_makes_of_them_in_that_epoch(root: Path) -> None:
    batch = notebook.batch(RECIPE, str(root), 4)
    assert batch.epoch == 1
    grey = np.zeros(3, np.uint8)  # nothing is cut out
    expected = augment(batch.stored["image"], batch.ids, RECIPE.augmentation, SEED, 1, grey)
    np.testing.assert_array_equal(batch.augmented["image"], expected)
    np.testing.assert_array_equal(batch.augmented["label"], batch.stored["label"])
    assert not np.array_equal(batch.augmented["image"], batch.stored["image"])


def test_raw_archives_are_converted_once(tmp_path: Path) -> None:
    source, root = write_raw_cifar(tmp_path / "raw"), str(tmp_path / "root")
    recipe = registry.get("cifar10")
    data = notebook.convert(recipe, root, source)
    assert (data.dataset, data.splits) == ("cifar10", {"train": 100, "test": 20})
    assert notebook.convert("cifar10", root, str(source)).reused
    assert len(notebook.open_dataset(data.dataset, root, fingerprint=data.fingerprint)) == 100


@pytest.mark.usefixtures("stages_here")
def test_a_recipe_is_trained_and_evaluated_as_by_the_commands(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = small_recipe(seed=SEED, duration=Duration(epochs=6), evaluate_every=None)
    with pytest.raises(StoreError, match="no finished run of sample"):
        notebook.evaluate("sample", str(root))
    trained = notebook.fit(recipe, str(root))
    assert trained.steps == 36
    assert f"{trained.run}: 36 steps" in capfd.readouterr().err
    evaluated = notebook.evaluate(trained.run, str(root))
    assert evaluated.examples == 16
    top1 = evaluated.metrics["top1"]
    assert 0 < top1.low < top1.value <= top1.high
    assert str(evaluated).startswith(f"{trained.run}: 16 examples, untrained ")
    assert evaluated._repr_html_() == f"<pre>{evaluated}</pre>"

    store = open_store(root)
    [entry] = ledger.entries(store, ledger.names(store, recipe="t", state="finished"))
    assert (entry.run, entry.way) == (trained.run, "commands")
    again = notebook.fit(registry.override(recipe, {"seed": SEED}), str(root), fingerprint="0123")
    assert (again.run, again.reused) == (trained.run, True)
    other = notebook.evaluate(trained.run, str(root), split="train")
    assert other.examples == TRAIN
