"""The whole of training with people in place of classes: what is written, what is resumed, what is found."""

from __future__ import annotations

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from dying_runs import bare_metrics, finished_after, losses
from small_dataset import FINGERPRINT
from small_poses import POSE, RECIPE, drawn, publish_poses

from podline import notebook
from podline.data.reader import open_split
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metrics_log import EvaluationLine, StepsLine, read_metrics
from podline.errors import DivergenceError, SettingsError
from podline.progress import silent
from podline.recipes.durations import Duration
from podline.recipes.phases import PhaseSettings
from podline.stages.specs import TrainResult, TrainSpec
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.train import train

STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")


def spec_of(root: Path, **values) -> TrainSpec:
    """The tiny recipe; ``preflight`` and ``strategy`` are the spec's own."""
    own = {name: values.pop(name) for name in ("preflight", "strategy") if name in values}
    return TrainSpec(root=str(root), recipe=RECIPE.model_copy(update=values), fingerprint=FINGERPRINT, **own)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> tuple[TrainSpec, TrainResult, Path]:
    """A run that nothing disturbed."""
    root = tmp_path_factory.mktemp("unbroken")
    publish_poses(root)
    spec = spec_of(root, preflight=False)
    result = train(spec, silent())
    return spec, result, root / spec.folder


def test_every_line_has_measures_of_every_stage_in_order_and_no_accuracy(unbroken):
    _, result, folder = unbroken
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, StepsLine | EvaluationLine)]
    assert [line.step for line in lines if isinstance(line, EvaluationLine)] == [4, 8]
    for line in lines:
        names = list(line.measures)
        assert names == sorted(names)
        assert [name for name in names if name.endswith("/loss")] == [f"{stage}/loss" for stage in STAGES]
        assert [name for name in names if name.endswith("/change")] == ["stage2_paf/change"]
        assert sum(line.measures[f"{stage}/loss"] for stage in STAGES) == pytest.approx(line.loss, rel=1e-5)
        assert 0 <= line.measures["stage3_heatmap/island_recall"] <= 1
    texts = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert not any("accuracy" in text for text in texts)
    assert result.steps == 8


def test_the_board_shows_the_stages(unbroken):
    from tensorflow.core.util.event_pb2 import Event  # noqa: PLC0415 (here alone)

    _, _, folder = unbroken
    [file] = (folder / "tensorboard").glob("*tfevents*")
    events = [Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
    tags = {value.tag for event in events for value in event.summary.value}
    assert {"train/stage1_paf/loss", "test/stage3_heatmap/island_recall", "train/loss", "test/loss"} <= tags
    assert not any(tag.endswith("/accuracy") for tag in tags)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(unbroken, tmp_path):
    spec, result, folder = unbroken
    publish_poses(tmp_path)

    again = spec_of(tmp_path)
    assert again.run == spec.run
    resumed = finished_after(again, 6)
    assert resumed.resumed_from == (4,)
    assert resumed.weights_sha256 == result.weights_sha256
    assert bare_metrics(tmp_path / again.folder) == bare_metrics(folder)


@pytest.mark.slow
def test_a_run_killed_in_any_phase_ends_with_the_same_bits(tmp_path):
    """At first small images, then the records' own, with another loss, batch and optimizer."""
    augmentation = POSE.augmentation.model_copy(update={"image_size": 32})
    model = POSE.model.model_copy(update={"paf_stages": 1})
    later = {"task.augmentation.image_size": 0, "task.emphasis": 2.0, "batch_size": 6, "optimizer": {"kind": "sgd"}}
    values = {
        "task": POSE.model_copy(update={"augmentation": augmentation, "model": model}),
        "preflight": False,
        "duration": Duration(epochs=2),
        "evaluate_every": None,
        "checkpoint_steps": 2,
        "phases": (PhaseSettings(from_epoch=1, changes=later),),
    }
    results = []
    for name, steps in (("unbroken", ()), ("killed", (3, 6))):
        publish_poses(tmp_path / name)
        results.append(finished_after(spec_of(tmp_path / name, **values), *steps))
    assert results[0].steps == 4 + 3
    assert results[1].weights_sha256 == results[0].weights_sha256


def test_what_is_published_gives_the_maps_of_what_was_trained(unbroken):
    spec, result, folder = unbroken
    store = open_store(spec.root)
    ours = load_model(store, spec.folder, result.weights_sha256)
    images = drawn(3, 5)["image"]
    expected = ours(images, training=False)
    assert list(expected) == list(STAGES)
    theirs = keras.models.load_model(folder / "model" / "model.keras", compile=False)(images, training=False)
    for stage in STAGES:
        np.testing.assert_allclose(theirs[stage], expected[stage], atol=1e-5)


@pytest.mark.slow
def test_two_replicas_train_as_one(unbroken, tmp_path):
    _, _, folder = unbroken
    publish_poses(tmp_path)
    spec = spec_of(tmp_path, strategy="cpu:2", preflight=False, duration=Duration(steps=4))
    train(spec, silent())
    # Batch norm is of each replica's own half, so the two part ways; the data are the same.
    assert losses(tmp_path / spec.folder) == pytest.approx(losses(folder)[:4], rel=0.15)
    [ours, theirs] = [
        next(line for line in bare_metrics(each) if line["kind"] == "evaluation")
        for each in (tmp_path / spec.folder, folder)
    ]
    assert (ours["step"], ours["examples"]) == (theirs["step"], theirs["examples"]) == (4, 6)
    assert ours["measures"].keys() == theirs["measures"].keys()


def test_data_of_another_size_are_refused_with_the_way_out(tmp_path):
    publish_poses(tmp_path)
    larger = POSE.model_copy(update={"side": 96})
    with pytest.raises(SettingsError, match=r"task.side=96 vs images of 64 pixels in coco/.*--side 96.*task.side=64"):
        train(spec_of(tmp_path, task=larger), silent())


@pytest.mark.slow
def test_a_learning_rate_is_searched_for_like_any_other(tmp_path):
    publish_poses(tmp_path)
    # Nearly all examples in each batch: the curve of so small a data set would be noise.
    recipe = RECIPE.model_copy(update={"batch_size": 16})
    found = notebook.find_learning_rate(recipe, str(tmp_path), steps=60, low=1e-5, high=1.0)
    assert 1e-5 < found.learning_rate < 1
    assert (tmp_path / found.chart).is_file()


POISONED = 11


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A data set with one joint that is nowhere."""
    splits = {"train": drawn(18, 0), "test": drawn(6, 1)}
    splits["train"]["keypoints"][POISONED, 0, 3] = np.nan, 7, 2
    publish_poses(tmp_path, splits=splits)
    return tmp_path


def place_of(root: Path) -> tuple[int, str]:
    """The poisoned example's number in the split and where it lies, by its image's id."""
    store, folder = open_store(root), dataset_folder("coco", FINGERPRINT)
    manifest = read_manifest(store, folder)
    reader = open_split(store, folder, manifest, "train")
    file, record, offset = reader.locate(POISONED)
    return POISONED, f"record {record} of {file}, at byte {offset}"


@pytest.mark.slow
def test_a_loss_that_diverged_is_traced_to_the_record(poisoned):
    example, place = place_of(poisoned)
    with pytest.raises(DivergenceError) as caught:
        train(spec_of(poisoned, preflight=False), silent())
    said = str(caught.value)
    assert f"the cause is example {example} of the training split: {place}" in said
    # The map that moves a joint mixes its x and its y.
    assert "keypoints with 2 of 162 numbers not finite" in said
    assert "the first fault is in the loss term stage1_paf" in said
