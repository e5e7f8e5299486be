"""A source's own validation split: converted, shown, decided by, and never trained on or judged by."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_images import as_folders, drawn, encoded, opened
from dying_runs import bare_metrics, finished_after
from parsing_here import parsing_here

from podline.beam_jobs.conversion import convert
from podline.datasets.validation import validate
from podline.documents.manifest import Manifest, dataset_folder, read_manifest
from podline.documents.metrics_log import EarlyStopLine, EvaluationLine, read_metrics
from podline.errors import SettingsError, SourceError
from podline.evaluation.evaluate import evaluate
from podline.kinds.classification.recipes.images import RECIPE
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.settings import EarlyStopSettings, ModelSettings, Recipe
from podline.stages.from_recipe import evaluation_spec, training_spec, validation_spec
from podline.stages.specs import ConvertSpec, TrainSpec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.plan import plan_training
from podline.training.train import train

NAME, SIZES = "images.lights", {"train": 60, "validation": 24, "test": 30}
FOLDERS = {"train": "train", "validation": "val", "test": "test"}


def picture(number: int) -> bytes:
    """Dark where the number is even, bright where it is odd."""
    return encoded((drawn(number) // 2 + 100 * (number % 2)).astype(np.uint8))


def split_folders(folder: Path, **sizes: int) -> Path:
    """``<split>/<class>/<name>``, no image twice."""
    first = 0
    for split, size in sizes.items():
        numbers = range(first, first + size)
        classes = {
            name: {f"{number}.png": picture(number) for number in numbers if number % 2 == odd}
            for odd, name in enumerate(("dark", "bright"))
        }
        as_folders(folder / FOLDERS[split], classes)
        first += size
    return folder


def converted(folder: Path, **sizes: int) -> Store:
    source = split_folders(folder / "raw", **sizes)
    given = {"root": str(folder / "root"), "dataset": NAME, "source": str(source), "side": 16, "shard_bytes": 20_000}
    with parsing_here():
        convert(ConvertSpec.model_validate(given), silent())
    return open_store(given["root"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return converted(tmp_path_factory.mktemp("lights"), **SIZES)


def fingerprint_in(store: Store) -> str:
    [found] = {name.split("/")[2] for name in store.list(f"datasets/{NAME}")}
    return found


def manifest_in(store: Store) -> Manifest:
    return read_manifest(store, dataset_folder(NAME, fingerprint_in(store)))


def recipe_with(**values: Any) -> Recipe:
    usual = {
        "dataset": NAME,
        "model": ModelSettings(kind="linear"),
        "batch_size": 10,
        "fit": None,
        "duration": Duration(epochs=4),
        "evaluate_every": Duration(epochs=1),
        "early_stop": EarlyStopSettings(patience=3),
        "checkpoint_steps": 6,
        "deterministic": True,
    }
    return RECIPE.changed(**usual | values)


def spec_of(store: Store, **values: Any) -> TrainSpec:
    return training_spec(store, recipe_with(**values), fingerprint_in(store), "cpu").changed(preflight=False)


def evaluations(store: Store, spec: TrainSpec) -> list[EvaluationLine]:
    lines = read_metrics(store.local(spec.folder) / "metrics.jsonl")
    return [line for line in lines if isinstance(line, EvaluationLine)]


def test_three_splits_are_converted_checked_and_shown(store: Store, podline: Callable[..., Any]) -> None:
    assert {split.name: split.records for split in manifest_in(store).splits} == SIZES
    assert validate(validation_spec(store, NAME, fingerprint_in(store), deep=True), silent()).records == 114
    shown = podline("data", "show", NAME, "--root", store.uri)
    assert shown.code == 0, shown
    for split, size in SIZES.items():
        assert re.search(rf"\b{split}\b.*\b{size}\b", shown.out), shown.out


def test_it_decides_all_training_examples_are_trained_on_and_the_test_split_is_judged_once(store: Store) -> None:
    spec = spec_of(store)
    plan = plan_training(spec.recipe, manifest_in(store))
    assert sorted(plan.order.ids.tolist()) == list(range(60))
    trained = train(spec, silent())
    assert {(line.split, line.examples) for line in evaluations(store, spec)} == {("validation", 24)}
    decisions = read_metrics(store.local(spec.folder) / "metrics.jsonl")
    stops = [line for line in decisions if isinstance(line, EarlyStopLine)]
    assert [line.value for line in stops] == [line.loss for line in evaluations(store, spec)]
    judged = evaluate(evaluation_spec(spec, trained), silent())
    assert (judged.examples, judged.failure) == (30, "")


def test_a_share_that_the_recipe_holds_out_is_not_needed(store: Store) -> None:
    plan = plan_training(recipe_with(validation_share=0.2), manifest_in(store))
    assert (len(plan.order.ids), len(plan.validation), plan.evaluated) == (60, 0, "validation")


def test_a_run_killed_between_its_decisions_ends_the_same(store: Store, tmp_path: Path) -> None:
    whole, other = spec_of(store, early_stop=None, keep="best"), converted(tmp_path, **SIZES)
    weights = train(whole, silent()).weights_sha256
    broken = spec_of(other, early_stop=None, keep="best")
    assert finished_after(broken, 13).weights_sha256 == weights
    assert bare_metrics(other.local(broken.folder)) == bare_metrics(store.local(whole.folder))


def test_train_and_val_alone_are_trained_on_and_tested_on(tmp_path: Path) -> None:
    alone = converted(tmp_path, train=60, validation=30)
    assert {split.name: split.records for split in manifest_in(alone).splits} == {"train": 60, "test": 30}
    with pytest.raises(SettingsError, match="vs validation_share=0: it needs examples that are held out"):
        spec_of(alone)


@pytest.mark.usefixtures("parsed_here")
@pytest.mark.parametrize(("other", "kept"), [("train", "validation"), ("validation", "test"), ("train", "test")])
def test_splits_that_share_images_are_refused(tmp_path: Path, other: str, kept: str) -> None:
    source = split_folders(tmp_path / "raw", **SIZES)
    [(name, data), *_] = [(file.name, file.read_bytes()) for file in sorted((source / FOLDERS[kept]).rglob("*.png"))]
    number = int(name.removesuffix(".png"))
    (source / FOLDERS[other] / ("bright" if number % 2 else "dark") / "again.png").write_bytes(data)
    words = f"1 of the {SIZES[kept]} {kept} images .* are {other.replace('train', 'training')} images as well vs 1% at"
    with pytest.raises(SourceError, match=words):
        opened(source)
