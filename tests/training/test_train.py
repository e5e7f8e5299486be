"""A run leaves all that it should, of the data that it names; a killed, stopped or damaged one leaves the same."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from dying_runs import finished_after, lively_recipe, losses, require_same, specs_of, unbroken
from small_dataset import FINGERPRINT, drawn, publish_dataset
from small_poses import POSE, publish_poses
from small_poses import RECIPE as POSES
from tensorflow.core.util.event_pb2 import Event

from podline.base.errors import ArtifactError, PreemptedError, SettingsError
from podline.base.progress import Reporter, silent
from podline.data.tfrecord import seal
from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import dataset_folder, read_manifest
from podline.documents.metrics_log import EvaluationLine, FindingLine, StepsLine, read_events
from podline.evaluation.evaluate import evaluate
from podline.stages.completed import find
from podline.stages.from_recipe import evaluation_spec, training_spec
from podline.stages.specs import EvaluateSpec, TrainResult, TrainSpec
from podline.stages.table import EVALUATE, TRAIN
from podline.store.opening import open_store
from podline.training.export import load_model
from podline.training.train import train
from tests.support.metrics import read_metrics

# 96 examples are 12 steps of 8; stops at 5, 8, 10, 12, 15, 16, 18, 20, 24, 25, 30.
RECIPE = lively_recipe(
    duration={"steps": 30},
    schedule={"kind": "cosine", "learning_rate": 0.01, "warmup": {"steps": 3}},
    evaluate_every={"steps": 12},
    checkpoint_steps=8,
    summary_steps=5,
)
spec_of = specs_of(RECIPE, preflight=True)
STOPS = [5, 8, 10, 12, 15, 16, 20, 24, 25, 30]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[TrainSpec, TrainResult, Path]:
    root = tmp_path_factory.mktemp("undisturbed")
    publish_dataset(root)
    return unbroken(spec_of(root))


def board(folder: Path) -> list[tuple[int, str, float]]:
    """TensorBoard's view: step, tag, value of the figures that no clock is in."""
    events = [
        Event.FromString(record.numpy())
        for file in sorted((folder / "tensorboard").glob("*tfevents*"))
        for record in tf.data.TFRecordDataset(str(file))
    ]
    return [
        (event.step, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
        if value.tag.rsplit("/", 1)[1] in ("loss", "accuracy", "learning_rate")
    ]


def test_a_run_leaves_all_that_it_should_and_its_metrics_have_no_gap(undisturbed):
    spec, result, folder = undisturbed
    lines = read_metrics(folder / "metrics.jsonl")
    assert [line.step for line in lines if isinstance(line, StepsLine)] == STOPS
    assert [line.step for line in lines if isinstance(line, EvaluationLine)] == [12, 24, 30]
    assert len(losses(folder)) == 30
    with (
        np.load(folder / "checkpoints" / "step-00000030.npz") as state,
        np.load(folder / "model" / "weights.npz") as kept,
    ):
        assert all(kept[name].tobytes() == state[f"average/{name}"].tobytes() for name in kept.files)
    assert [event.event for event in read_events(folder / "events.jsonl")] == ["started", "finished"]
    assert {path.stem for path in (folder / "checkpoints").iterdir()} == {"step-00000030"}
    assert (result.steps, result.examples, result.epochs, result.resumed_from) == (30, 240, 2.5, ())
    assert result.loss == [line for line in lines if isinstance(line, StepsLine)][-1].loss
    assert result.parameters == (8 * 8 * 3 + 1) * 3
    assert 0 <= result.waiting_for_input < 1
    assert find(spec, silent()) == result.model_copy(update={"reused": True})
    expected = []  # in TensorBoard
    for line in lines:
        group = "train" if isinstance(line, StepsLine) else line.split
        expected += [(line.step, f"{group}/loss", line.loss), (line.step, f"{group}/accuracy", line.accuracy)]
        if isinstance(line, StepsLine):
            expected.append((line.step, "train/learning_rate", line.learning_rate))
    assert board(folder) == [(step, tag, float(np.float32(value))) for step, tag, value in expected]


def test_plain_keras_opens_the_export_and_gets_the_same_from_raw_pixels(undisturbed):
    spec, result, folder = undisturbed
    images = drawn(40, 1)["image"]
    plain = keras.models.load_model(folder / "model" / "model.keras")
    ours = load_model(open_store(spec.root), spec.folder, result.weights_sha256)
    assert plain.input_dtype == "uint8" or plain.inputs[0].dtype == "uint8"
    np.testing.assert_allclose(plain(images), ours(images), atol=1e-5)
    accuracy = np.mean(np.argmax(plain(images), 1) == drawn(40, 1)["label"])
    last = read_metrics(folder / "metrics.jsonl")[-1]
    assert accuracy == last.accuracy


def test_a_run_killed_again_and_again_ends_with_the_same_bits_and_no_gap_or_repeat(undisturbed, root):
    spec = spec_of(root)
    result = finished_after(spec, 9, 16)
    require_same(spec, result, undisturbed)
    assert board(root / spec.folder) == board(undisturbed[2])
    assert result.resumed_from == (8, 8), "a step is told of before its checkpoint is written"


def test_sigterm_saves_and_the_next_start_goes_on_from_that_very_step(undisturbed, root):
    _, expected, folder = undisturbed
    spec = spec_of(root).changed(preflight=False)

    def act(event: dict) -> None:
        if event["event"] == "progress" and event["done"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(PreemptedError, match="at step 1 of 30"):
        train(spec, Reporter("train", act))
    result = train(spec, silent())
    assert result.resumed_from == (1,)
    assert losses(root / spec.folder) == losses(folder)
    assert result.weights_sha256 == expected.weights_sha256, "with and without a preflight"
    kinds = [event.event for event in read_events(root / spec.folder / "events.jsonl")]
    assert kinds == ["started", "preempted", "restored", "finished"]


def test_a_damaged_export_is_made_again_from_the_last_checkpoint(undisturbed, tmp_path):
    first, expected, _ = undisturbed
    shutil.copytree(first.root, tmp_path, dirs_exist_ok=True)
    spec, said = spec_of(tmp_path), []
    weights = tmp_path / spec.folder / "model" / "weights.npz"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert find(spec, silent()) is None
    assert train(spec, Reporter("train", said.append)).weights_sha256 == expected.weights_sha256
    assert not any(event["event"] == "progress" for event in said), "no step was taken again"


def test_a_model_that_cannot_tell_its_images_apart_is_a_finding_that_is_warned_of_once(tmp_path):
    columns = {name: drawn(96, seed) for name, seed in (("train", 0), ("test", 1))}
    for split in columns.values():
        split["image"][:] = 100
    publish_dataset(tmp_path, splits=columns)
    spec, said = spec_of(tmp_path), []
    train(spec, Reporter("train", said.append))
    [line] = [line for line in read_metrics(tmp_path / spec.folder / "metrics.jsonl") if isinstance(line, FindingLine)]
    assert (line.step, line.finding, line.where) == (12, "collapsed_output", "classifier")
    [warning] = [event["message"] for event in said if event.get("level") == "warning"]
    assert warning == f"step 12: {line.message}; {line.suggestion}"


STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")


def pose_spec(root: Path, **values) -> TrainSpec:
    recipe = POSES.model_copy(update=values)
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, preflight=False)


@pytest.fixture(scope="module")
def poses(tmp_path_factory) -> tuple[TrainSpec, TrainResult, Path]:
    """A run that nothing disturbed."""
    root = tmp_path_factory.mktemp("unbroken")
    publish_poses(root)
    spec = pose_spec(root)
    result = train(spec, silent())
    return spec, result, root / spec.folder


def test_every_line_has_measures_of_every_stage_in_order_and_no_accuracy(poses):
    _, result, folder = poses
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if isinstance(line, StepsLine | EvaluationLine)]
    assert [line.step for line in lines if isinstance(line, EvaluationLine)] == [4, 8]
    for line in lines:
        names = list(line.measures)
        assert names == sorted(names)
        assert [name for name in names if name.endswith("/loss")] == [f"{stage}/loss" for stage in STAGES]
        assert sum(line.measures[f"{stage}/loss"] for stage in STAGES) == pytest.approx(line.loss, rel=1e-5)
        assert 0 <= line.measures["stage3_heatmap/island_recall"] <= 1
    assert '"accuracy"' not in (folder / "metrics.jsonl").read_text()
    assert result.steps == 8
    tags = {tag for _, tag, _ in board(folder)}
    assert {"train/stage1_paf/loss", "test/stage2_paf/loss", "train/loss", "test/loss"} <= tags


def test_data_of_another_size_are_refused_with_the_way_out(tmp_path):
    publish_poses(tmp_path)
    larger = POSE.model_copy(update={"side": 96})
    with pytest.raises(SettingsError, match=r"task.side=96 vs images of 64 pixels in coco/.*--side 96.*task.side=64"):
        train(pose_spec(tmp_path, task=larger), silent())


FOLDER = dataset_folder("sample", FINGERPRINT)


def relabel(root: Path, split: str) -> None:
    """Gives every example of a split another label, with the right checksum for its record."""
    manifest = read_manifest(open_store(root), FOLDER)
    place = 12 + manifest.field("label").offset
    for shard in manifest.split(split).shards:
        path = root / FOLDER / shard.file
        frames = np.fromfile(path, np.uint8).reshape(shard.records, -1)
        frames[:, place] = (frames[:, place] + 1) % 3
        seal(frames)
        with path.open("r+b") as file:  # a file that a training has mapped must not be cut for a moment
            file.write(frames.tobytes())


def coded(root: Path) -> TrainSpec:
    """The spec as it is planned, with the checksum of its data set's manifest."""
    return training_spec(open_store(root), RECIPE, FINGERPRINT, "cpu")


def once(unit: str, step: int, act: Callable[[], None]) -> Reporter:
    """Act when so many steps or examples are done."""
    done: list[int] = []

    def hear(event: dict) -> None:
        if event["event"] == "progress" and event["unit"] == unit and event["done"] >= step and not done:
            done.append(event["done"])
            act()

    return Reporter("train", hear)


def test_what_was_learned_from_other_labels_is_not_kept(root: Path, undisturbed) -> None:
    """The data are put back before the next checkpoint: their content is right at both ends."""
    shutil.copytree(root / FOLDER, root / "kept")
    spec = coded(root)
    with pytest.raises(ArtifactError, match=r"was changed while it was read, .* resumes from the last checkpoint"):
        train(spec, once("steps", 18, lambda: relabel(root, "train")))
    checkpoints = sorted(path.name for path in (root / spec.folder / "checkpoints").glob("*.json"))
    assert checkpoints[-1] == "step-00000016.json"
    assert TRAIN.find(spec, silent()) is None
    assert not (root / spec.folder / "model").exists()
    with pytest.raises(ArtifactError, match="has sha256"):
        train(spec, silent())
    shutil.copytree(root / "kept", root / FOLDER, dirs_exist_ok=True)
    result = train(spec, silent())
    assert result.resumed_from == (16,)
    assert result.weights_sha256 == undisturbed[1].weights_sha256


@pytest.fixture
def ended(undisturbed, tmp_path: Path) -> EvaluateSpec:
    """A finished run in a store of its own."""
    spec, result, _ = undisturbed
    shutil.copytree(spec.root, tmp_path, dirs_exist_ok=True)
    return evaluation_spec(coded(tmp_path), result)


@pytest.mark.parametrize("split", ["train", "test"])
def test_nothing_is_judged_by_other_labels(ended: EvaluateSpec, split: str) -> None:
    root = Path(ended.root)
    relabel(root, split)
    with pytest.raises(ArtifactError, match=r"00000-of-\d+ has sha256 \w+… vs \w+… in the manifest"):
        evaluate(ended, silent())
    assert not (root / ended.folder / EVALUATION).exists()


def test_what_was_judged_by_labels_that_were_changed_meanwhile_is_not_published(ended: EvaluateSpec) -> None:
    root = Path(ended.root)
    with pytest.raises(ArtifactError, match="was changed while it was read"):
        evaluate(ended, once("answers", 0, lambda: relabel(root, "test")))
    assert not (root / ended.folder / EVALUATION).exists()
    assert EVALUATE.find(ended, silent()) is None
