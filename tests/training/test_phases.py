"""Runs of several phases: other batches, other layers, other augmentation, whole and broken off."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from dying_runs import bare_metrics, finished_after, killed_at
from small_dataset import FINGERPRINT, publish_dataset

from podline.data.reader import SplitReader
from podline.documents.manifest import Manifest
from podline.documents.metrics_log import EvaluationLine, StepsLine, read_metrics
from podline.errors import SettingsError
from podline.input.augmentation import augment
from podline.input.pipeline import TrainingInput
from podline.ledger.paces import trained_at
from podline.ledger.provenance import environment
from podline.ledger.slowness import slowness
from podline.models.build import build_model
from podline.progress import silent
from podline.recipes.changes import ByEpoch
from podline.recipes.settings import (
    AugmentationSettings,
    ByEpochSettings,
    Duration,
    ModelSettings,
    Recipe,
    ScheduleSettings,
)
from podline.stages.specs import TrainResult, TrainSpec
from podline.training import loop
from podline.training.phases import let_train
from podline.training.plan import Phase, plan_training
from podline.training.steps import TrainingSteps
from podline.training.train import train

# 96 examples: an epoch of 12 steps, one of 6 and one of 12; at first the classifier alone trains.
RECIPE = Recipe(
    name="t",
    dataset="sample",
    model=ModelSettings(kind="resnet", width=0.1, dropout=0.2),
    batch_size=8,
    evaluation_batch_size=16,
    duration=Duration(epochs=3),
    schedule=ScheduleSettings(kind="constant", learning_rate=0.01),
    augmentation=AugmentationSettings(flip=True),
    trainable_layers=("classifier",),
    by_epoch=ByEpochSettings(
        learning_rate=ByEpoch[float](at=((2, 0.002),), between="linear"),
        batch_size=ByEpoch[int](at=((1, 16), (2, 8))),
        augmentation=ByEpoch[AugmentationSettings](at=((1, AugmentationSettings(pad=1)),)),
        trainable_layers=ByEpoch[tuple[str, ...]](at=((1, ("",)),)),
    ),
    ema_decay=0.9,
    evaluate_every=Duration(epochs=1),
    checkpoint_steps=7,
    summary_steps=5,
    deterministic=True,
)


@pytest.fixture(autouse=True)
def _all_the_news(monkeypatch):
    """Progress is told after every part, however fast: a run dies at the very step that a test names."""
    monkeypatch.setattr(loop, "_NEWS_SECONDS", -1.0)


def spec_of(root: Path, **values) -> TrainSpec:
    publish_dataset(root)
    return TrainSpec(root=str(root), recipe=RECIPE.model_copy(update=values), fingerprint=FINGERPRINT)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> tuple[TrainResult, Path]:
    spec = spec_of(tmp_path_factory.mktemp("unbroken"))
    result = train(spec, silent())
    return result, Path(spec.root) / spec.folder


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return publish_dataset(tmp_path_factory.mktemp("data"))


def test_the_plan_cuts_the_run_where_a_batch_or_the_layers_change(manifest):
    plan = plan_training(RECIPE, manifest)
    assert plan.phases == (
        Phase(0, 12, 8, ("classifier",)),
        Phase(12, 18, 16, ("",)),
        Phase(18, 30, 8, ("",)),
    )
    assert (plan.total_steps, plan.evaluations) == (30, (12, 18, 30))
    assert [plan.epoch(step) for step in (6, 12, 15, 18, 30)] == [0.5, 1, 1.5, 2, 3]
    assert plan.schedule.at(15) == pytest.approx(0.01 - 0.75 * 0.008)


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (Duration(epochs=0.5), (6, 12, 15, 18, 24, 30)),
        (Duration(steps=9), (9, 18, 27, 30)),
        (Duration(examples=64), (8, 14, 18, 26, 30)),
        (Duration(epochs=9), (30,)),
        (None, (30,)),
    ],
)
def test_evaluations_come_after_so_many_epochs_or_examples_whatever_the_batch(manifest, every, due):
    assert plan_training(RECIPE.model_copy(update={"evaluate_every": every}), manifest).evaluations == due


def test_a_later_batch_or_augmentation_that_does_not_fit_is_refused_before_the_first_step(manifest):
    large = RECIPE.model_copy(update={"by_epoch": ByEpochSettings(batch_size=ByEpoch[int](at=((2, 97),)))})
    with pytest.raises(SettingsError, match="batch_size=97 vs 96 examples"):
        plan_training(large, manifest)
    wide = ByEpoch[AugmentationSettings](at=((2, AugmentationSettings(cutout=8)),))
    with pytest.raises(SettingsError, match="cutout=8 vs images of 8 × 8"):
        plan_training(RECIPE.model_copy(update={"by_epoch": ByEpochSettings(augmentation=wide)}), manifest)


def test_lines_of_metrics_are_about_batches_of_one_size(unbroken):
    result, folder = unbroken
    lines = read_metrics(folder / "metrics.jsonl")
    steps = [line for line in lines if isinstance(line, StepsLine)]
    assert [line.step for line in steps] == [5, 7, 10, 12, 14, 15, 18, 20, 21, 25, 28, 30]
    assert [line.step for line in lines if isinstance(line, EvaluationLine)] == [12, 18, 30]
    assert {len(line.gradient_norms) for line in steps if line.step <= 12} == {1}
    assert min(len(line.gradient_norms) for line in steps if line.step > 12) > 1
    assert all(0 <= line.accuracy <= 1 for line in steps)
    assert (result.steps, result.examples, result.epochs) == (30, 288, 3)


def test_layers_that_do_not_train_stay_as_they_are_and_then_move(tmp_path, unbroken):
    """Batch norm's moving statistics included; the optimizer has slots for all layers from the start."""
    _, folder = unbroken
    spec = spec_of(tmp_path, checkpoint_steps=6)
    killed_at(spec, 13)
    checkpoints = tmp_path / spec.folder / "checkpoints"
    with np.load(checkpoints / "step-00000006.npz") as at_6, np.load(checkpoints / "step-00000012.npz") as at_12:
        moved = {name for name in at_6.files if at_6[name].tobytes() != at_12[name].tobytes()}
        weights = {name.removeprefix("model/") for name in moved if name.startswith("model/")}
        assert weights
        assert all(name.startswith(("classifier", "seed", "dropout")) for name in weights), weights
        with np.load(folder / "checkpoints" / "step-00000030.npz") as last:
            assert sorted(last.files) == sorted(at_12.files)
            still = [
                name for name in last.files if name.startswith("model/") and np.array_equal(last[name], at_6[name])
            ]
    assert still == []


@pytest.mark.parametrize("steps", [(3, 13), (12,), (16, 20)])
def test_a_run_killed_in_the_middle_of_a_phase_ends_with_the_same_bits(unbroken, tmp_path, steps):
    expected, folder = unbroken
    spec = spec_of(tmp_path)
    assert finished_after(spec, *steps).weights_sha256 == expected.weights_sha256
    assert bare_metrics(tmp_path / spec.folder) == bare_metrics(folder)


def test_what_is_exported_trains_as_a_whole(unbroken):
    _, folder = unbroken
    model = keras.models.load_model(folder / "model" / "model.keras")
    assert isinstance(model, keras.Model)
    assert all(layer.trainable for layer in model.layers)


def test_augmentation_changes_with_the_epochs_of_the_run(tmp_path):
    manifest = publish_dataset(tmp_path)
    plan = plan_training(RECIPE, manifest, first_epoch=5)
    reader = SplitReader((tmp_path / "datasets" / "sample" / FINGERPRINT).joinpath, manifest, "train")
    source = TrainingInput(
        reader,
        manifest,
        ("image",),
        order=plan.order,
        augmentation=RECIPE.augmentation,
        later=RECIPE.changing.augmentation,
    )
    fill = np.zeros(3, np.uint8)
    for step, settings in ((0, RECIPE.augmentation), (12, AugmentationSettings(pad=1))):
        epoch, ids, stored = source.read(step)
        assert epoch == 5 + plan.epoch(step)
        expected = augment(stored["image"], ids, settings, RECIPE.seed, epoch, fill)
        assert np.array_equal(source.batch(step)["image"], expected)


def test_a_beginning_that_fits_no_layer_is_refused_before_the_first_step(tmp_path):
    later = ByEpochSettings(trainable_layers=ByEpoch[tuple[str, ...]](at=((1, ("stage9",)),)))
    with pytest.raises(SettingsError, match=r"no layer with weights starts with 'stage9'; there are: .*classifier"):
        train(spec_of(tmp_path, by_epoch=later), silent())


def test_a_layer_that_trains_again_has_gradients_again():
    import tensorflow as tf  # noqa: PLC0415

    model = build_model(ModelSettings(kind="resnet", width=0.1), (8, 8, 3), 3, (0.0,) * 3, (1.0,) * 3)
    everything = [variable.path for variable in model.trainable_variables]
    order = [variable.path for variable in model.variables]
    let_train(model, ("classifier",))
    assert {variable.path for variable in model.trainable_variables} == {"classifier/kernel", "classifier/bias"}
    assert [variable.path for variable in model.variables] == order
    let_train(model, ("",))
    assert [variable.path for variable in model.trainable_variables] == everything
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(np.zeros((2, 8, 8, 3), np.uint8), training=True) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    assert all(gradient is not None for gradient in gradients)


def test_a_step_that_is_traced_anew_at_every_part_is_named_as_the_cause(tmp_path, unbroken, monkeypatch):
    """Planted: each part of a stretch begins with a graph of its own."""
    usual, _ = unbroken
    assert usual.traces == 3
    advance = TrainingSteps.advance

    def traced_anew(steps, count):
        steps._many = tf.function(steps._take, autograph=False)
        return advance(steps, count)

    monkeypatch.setattr(TrainingSteps, "advance", traced_anew)
    slow = train(spec_of(tmp_path, duration=Duration(steps=12)), silent())
    assert slow.traces >= 5
    before, now = (trained_at(each, environment()) for each in (usual, slow))
    found = slowness(now, [before] * 3)
    assert found is not None
    assert f"traced {slow.traces} graphs of the training step, 3 before" in found.cause
