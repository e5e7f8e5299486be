"""A held-out part or the source's own validation split decides, if it is large enough; the test split never does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish, small_recipe

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import EarlyStopLine, EvaluationLine
from podline.evaluation.evaluate import evaluate
from podline.recipes import registry
from podline.recipes.durations import Duration
from podline.recipes.settings import AugmentationSettings, EarlyStopSettings, FitSettings
from podline.recipes.validation import with_rarer_evaluations, with_validation
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.plan import plan_training
from podline.training.train import train
from tests.support.metrics import read_metrics

STOP = EarlyStopSettings(patience=5)
RECIPE = small_recipe(
    validation_share=0.1,
    early_stop=STOP,
    fit=FitSettings(least_validation=8),
    duration=Duration(epochs=40),
).changed(dataset="images")


def manifest_of(root: Path, **sizes: int) -> Manifest:
    splits = {name: drawn(size, seed, side=2) for seed, (name, size) in enumerate(sizes.items())}
    return publish(root, "images", CLASS_NAMES, splits, shard_records=10_000)


FEW = "would be too few for decisions, {} are enough"
NONE = "no training images are held out, and the last weights are the result: "


@pytest.mark.parametrize(
    ("given", "train", "validation", "expected", "said"),
    [
        ({}, 80, 0, (0.1, STOP), ""),
        ({}, 74, 0, (0.0, None), f"{NONE}7 of 74 images {FEW.format(8)}"),
        (
            {"further": "t-0"},
            80,
            0,
            (0.0, None),
            f"{NONE}the run that is trained further may have learned any of the images",
        ),
        ({"evaluate_every": None}, 80, 0, (0.0, None), f"{NONE}there are no evaluations during training"),
        # A validation split of the source's own.
        ({}, 74, 8, (0.1, STOP), ""),
        ({"further": "t-0"}, 74, 8, (0.1, STOP), ""),
        ({}, 80, 7, (0.0, None), "the last weights are the result: 7 images of the validation split " + FEW.format(8)),
        # What a person gives comes first.
        ({"validation_share": 0.05}, 74, 0, (0.05, STOP), ""),
        ({"early_stop.patience": 2}, 74, 3, (0.1, EarlyStopSettings(patience=2)), ""),
    ],
)
def test_a_part_is_held_out_if_it_is_large_enough_to_decide(
    tmp_path: Path, given: dict[str, Any], train: int, validation: int, expected: tuple[Any, ...], said: str
) -> None:
    sizes = {"train": train, "test": 9} | ({"validation": validation} if validation else {})
    told: list[str] = []
    found = with_validation(registry.override(RECIPE, given), manifest_of(tmp_path, **sizes), told.append)
    assert (found.validation_share, found.early_stop) == expected
    assert told == ([said] if said else [])


@pytest.mark.parametrize(("train", "test", "validation_share"), [(126, 77, 0), (3000, 2000, 0), (900, 100, 0.3)])
def test_evaluations_take_a_tenth_of_the_training_by_the_number_of_images(
    tmp_path: Path, train: int, test: int, validation_share: float
) -> None:
    manifest = manifest_of(tmp_path, train=train, test=test)
    recipe = RECIPE.changed(validation_share=validation_share, early_stop=None, fit=None, batch_size=16)
    often = recipe.changed(evaluate_every=Duration(steps=1))
    for asked in (recipe, often):
        plan = plan_training(with_rarer_evaluations(asked, manifest, 0.1), manifest)
        evaluated = (len(plan.validation) or test) + min(test, 64)  # some measure the layers
        # A step takes three times as long as an evaluation of its images; the last evaluation comes in any case.
        trained = 3 * 16 * plan.total_steps
        assert 4 <= len(plan.evaluations) <= 2 + max(4, 0.1 * trained / evaluated)
    assert len(plan.evaluations) > 0.9 * min(0.1 * trained / evaluated, plan.total_steps)
    assert with_rarer_evaluations(often, manifest, 0) == often


def test_features_that_are_computed_once_leave_no_time_for_evaluations(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, train=160, test=100)
    recipe = RECIPE.changed(
        validation_share=0.0, early_stop=None, fit=None, batch_size=16, duration=Duration(epochs=100)
    )
    frozen = recipe.changed(trainable_layers=("classifier",), augmentation=AugmentationSettings(views=4))
    upper = {"from_epoch": 60, "changes": {"trainable_layers": ["top", "classifier"], "augmentation.views": 0}}
    both = registry.override(frozen, {"phases": [upper]})
    # Four views of each image; or these, and 40 epochs in which upper layers train, with twice the work of evaluations.
    for each, work in ((frozen, 4 * 160), (both, 4 * 160 + 40 * 2 * 160)):
        most = max(0.1 * work / (100 + 64), 4)
        evaluations = plan_training(with_rarer_evaluations(each, manifest, 0.1), manifest).evaluations
        assert 0.7 * most < len(evaluations) <= most + 1


SIZES = {"train": 60, "validation": 24, "test": 30}


USUAL = {"duration": Duration(epochs=4), "evaluate_every": Duration(epochs=1), "deterministic": True}


LIGHTS = small_recipe(**USUAL).changed(dataset="images.lights", early_stop=EarlyStopSettings(patience=3))


def published(root: Path, *names: str) -> tuple[Store, Manifest]:
    splits = {split: drawn(SIZES[split], seed) for seed, split in enumerate(names)}
    return open_store(root), publish(root, LIGHTS.dataset, CLASS_NAMES, splits, shard_records=10)


def test_a_validation_split_decides_and_the_test_split_is_judged_once(
    tmp_path: Path,
) -> None:
    store, manifest = published(tmp_path, *SIZES)
    spec = training_spec(store, LIGHTS, FINGERPRINT, "cpu")
    assert sorted(plan_training(LIGHTS, manifest).order.ids.tolist()) == list(range(60))
    share = plan_training(LIGHTS.changed(validation_share=0.2), manifest)
    assert (len(share.order.ids), len(share.validation), share.evaluated) == (60, 0, "validation")
    assert "the validation split to choose the best weights and to end the training when" in share.evaluates
    trained = train(spec, silent())
    lines = read_metrics(store.local(spec.folder) / "metrics.jsonl")
    evaluations = [line for line in lines if isinstance(line, EvaluationLine)]
    assert {(line.split, line.examples) for line in evaluations} == {("validation", 24)}
    assert [line.value for line in lines if isinstance(line, EarlyStopLine)] == [line.loss for line in evaluations]
    judged = evaluate(evaluation_spec(spec, trained), silent())
    assert judged.examples == SIZES["test"]


def test_a_run_without_held_out_examples_can_decide_nothing(tmp_path: Path) -> None:
    store, _ = published(tmp_path, "train", "test")
    with pytest.raises(SettingsError, match="vs validation_share=0: it needs examples that are held out"):
        training_spec(store, LIGHTS, FINGERPRINT, "cpu")
