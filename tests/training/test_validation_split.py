"""A source's own validation split: decided by, and never trained on or judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_folders, encoded, opened
from drawn_images import drawn as noise
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish, small_recipe

from podline.base.errors import SettingsError, SourceError
from podline.base.progress import silent
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import EarlyStopLine, EvaluationLine
from podline.evaluation.evaluate import evaluate
from podline.recipes.durations import Duration
from podline.recipes.settings import EarlyStopSettings
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.plan import plan_training
from podline.training.train import train
from tests.support.metrics import read_metrics

SIZES = {"train": 60, "validation": 24, "test": 30}
FOLDERS = {"train": "train", "validation": "val", "test": "test"}


def split_folders(folder: Path, **sizes: int) -> Path:
    """``<split>/<class>/<name>``: dark images with even numbers, bright ones with odd; no image twice."""
    first = 0
    for split, size in sizes.items():
        for odd, name in enumerate(("dark", "bright")):
            numbers = [number for number in range(first, first + size) if number % 2 == odd]
            pixels = {f"{number}.png": (noise(number) // 2 + 100 * odd).astype(np.uint8) for number in numbers}
            as_folders(folder / FOLDERS[split], {name: {file: encoded(image) for file, image in pixels.items()}})
        first += size
    return folder


def test_a_source_has_three_splits_or_trains_and_tests_on_two(tmp_path: Path, parsed_here: None) -> None:
    assert opened(split_folders(tmp_path / "three", **SIZES)).sizes == SIZES
    assert opened(split_folders(tmp_path / "two", train=60, validation=30)).sizes == {"train": 60, "test": 30}


@pytest.mark.usefixtures("parsed_here")
@pytest.mark.parametrize(("other", "kept"), [("train", "validation"), ("validation", "test")])
def test_splits_that_share_images_are_refused(tmp_path: Path, other: str, kept: str) -> None:
    source = split_folders(tmp_path / "raw", **SIZES)
    shared = sorted((source / FOLDERS[kept]).rglob("*.png"))[0]
    (source / FOLDERS[other] / shared.parent.name / "again.png").write_bytes(shared.read_bytes())
    words = f"1 of the {SIZES[kept]} {kept} images .* are {other.replace('train', 'training')} images as well vs 1% at"
    with pytest.raises(SourceError, match=words):
        opened(source)


USUAL = {"duration": Duration(epochs=4), "evaluate_every": Duration(epochs=1), "deterministic": True}
RECIPE = small_recipe(**USUAL).changed(dataset="images.lights", early_stop=EarlyStopSettings(patience=3))


def published(root: Path, *names: str) -> tuple[Store, Manifest]:
    splits = {split: drawn(SIZES[split], seed) for seed, split in enumerate(names)}
    return open_store(root), publish(root, RECIPE.dataset, CLASS_NAMES, splits, shard_records=10)


def test_it_decides_all_training_examples_are_trained_on_and_the_test_split_is_judged_once(tmp_path: Path) -> None:
    store, manifest = published(tmp_path, *SIZES)
    spec = training_spec(store, RECIPE, FINGERPRINT, "cpu")
    assert sorted(plan_training(RECIPE, manifest).order.ids.tolist()) == list(range(60))
    share = plan_training(RECIPE.changed(validation_share=0.2), manifest)
    assert (len(share.order.ids), len(share.validation), share.evaluated) == (60, 0, "validation")
    trained = train(spec, silent())
    lines = read_metrics(store.local(spec.folder) / "metrics.jsonl")
    evaluations = [line for line in lines if isinstance(line, EvaluationLine)]
    assert {(line.split, line.examples) for line in evaluations} == {("validation", 24)}
    assert [line.value for line in lines if isinstance(line, EarlyStopLine)] == [line.loss for line in evaluations]
    judged = evaluate(evaluation_spec(spec, trained), silent())
    assert judged.examples == SIZES["test"]


def test_without_one_nothing_can_decide(tmp_path: Path) -> None:
    store, _ = published(tmp_path, "train", "test")
    with pytest.raises(SettingsError, match="vs validation_share=0: it needs examples that are held out"):
        training_spec(store, RECIPE, FINGERPRINT, "cpu")
