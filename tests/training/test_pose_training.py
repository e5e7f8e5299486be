"""A training on people writes the measures of every stage, and refuses data of another size."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from small_dataset import FINGERPRINT
from small_poses import POSE, RECIPE, publish_poses
from tensorflow.core.util.event_pb2 import Event

from podline.base.errors import SettingsError
from podline.base.progress import silent
from podline.documents.metrics_log import EvaluationLine, StepsLine
from podline.stages.specs import TrainResult, TrainSpec
from podline.training.train import train
from tests.support.metrics import read_metrics

STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")


def spec_of(root: Path, **values) -> TrainSpec:
    recipe = RECIPE.model_copy(update=values)
    return TrainSpec(root=str(root), recipe=recipe, fingerprint=FINGERPRINT, preflight=False)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> tuple[TrainSpec, TrainResult, Path]:
    """A run that nothing disturbed."""
    root = tmp_path_factory.mktemp("unbroken")
    publish_poses(root)
    spec = spec_of(root)
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
        assert sum(line.measures[f"{stage}/loss"] for stage in STAGES) == pytest.approx(line.loss, rel=1e-5)
        assert 0 <= line.measures["stage3_heatmap/island_recall"] <= 1
    assert '"accuracy"' not in (folder / "metrics.jsonl").read_text()
    assert result.steps == 8
    [board] = (folder / "tensorboard").glob("*tfevents*")
    events = [Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(board))]
    tags = {value.tag for event in events for value in event.summary.value}
    assert {"train/stage1_paf/loss", "test/stage3_heatmap/island_recall", "train/loss", "test/loss"} <= tags


def test_data_of_another_size_are_refused_with_the_way_out(tmp_path):
    publish_poses(tmp_path)
    larger = POSE.model_copy(update={"side": 96})
    with pytest.raises(SettingsError, match=r"task.side=96 vs images of 64 pixels in coco/.*--side 96.*task.side=64"):
        train(spec_of(tmp_path, task=larger), silent())
