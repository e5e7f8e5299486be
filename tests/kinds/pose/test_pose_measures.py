from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from podline.documents.skeleton import COCO
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.stage_measures import stage_figures, stage_sums, sum_names
from podline.kinds.pose.targets import pose_targets

SIDE, CELLS = 128, 16


def targets(ignored=0):
    keypoints = np.zeros((2, 2, 18, 3), np.float32)
    keypoints[0, 0, COCO.index["right_hip"]] = 35.5, 35.5, 2
    keypoints[0, 0, COCO.index["right_knee"]] = 35.5, 83.5, 2
    keypoints[1, 0, COCO.index["right_hip"]] = 91.5, 19.5, 2
    keypoints[1, 1, COCO.index["left_wrist"]] = 43.5, 99.5, 1
    mask = np.full((2, CELLS, CELLS), ignored, np.uint8)
    return pose_targets(keypoints, mask, SIDE, PoseTargetSettings(joint_sigma=8, limb_sigma=8), COCO)


def measured(heatmaps, pafs, drawn):
    return figures({"stage1_paf": pafs, "stage2_heatmap": heatmaps}, drawn)


def figures(answers, drawn):
    sums = stage_sums({name: tf.convert_to_tensor(answer) for name, answer in answers.items()}, drawn)
    assert tuple(sums) == sum_names(tuple(answers))
    assert {tuple(value.shape) for value in sums.values()} == {(2,)}
    return stage_figures({name: float(tf.reduce_sum(value)) for name, value in sums.items()}, tuple(answers), COCO)


def test_a_perfect_answer():
    drawn = targets()
    found = measured(drawn.heatmaps, drawn.pafs, drawn)
    assert list(found) == sorted(found)
    for stage in ("stage1_paf", "stage2_heatmap"):
        values = [found[f"{stage}/{name}"] for name in ("magnitude", "variation", "recall", "island_recall", "error")]
        assert values == pytest.approx([1, 1, 1, 1, 0])


def test_zeros_are_a_collapse():
    drawn = targets()
    found = measured(tf.zeros_like(drawn.heatmaps), 0.02 * drawn.pafs, drawn)
    assert found["stage2_heatmap/magnitude"] == 0
    assert found["stage2_heatmap/error"] == pytest.approx(float(tf.reduce_mean(drawn.heatmaps)), rel=1e-5)
    assert found["stage2_heatmap/recall"] == found["stage2_heatmap/island_recall"] == 0
    assert found["stage1_paf/magnitude"] == pytest.approx(0.02)


def test_a_constant_is_a_collapse_however_strong():
    drawn = targets()
    found = measured(tf.fill(drawn.heatmaps.shape, 0.1), tf.fill(drawn.pafs.shape, -0.2), drawn)
    assert min(found["stage2_heatmap/magnitude"], found["stage1_paf/magnitude"]) > 1
    assert found["stage2_heatmap/variation"] == pytest.approx(0, abs=1e-4)
    assert found["stage1_paf/variation"] == pytest.approx(0, abs=1e-4)
    healthy = measured(0.1 + 0.5 * drawn.heatmaps, 0.5 * drawn.pafs, drawn)
    for stage in ("stage1_paf", "stage2_heatmap"):
        assert healthy[f"{stage}/variation"] == pytest.approx(0.5, rel=1e-3)


def test_a_copy_of_the_stage_before():
    drawn = targets()
    answers = {
        "stage1_paf": drawn.pafs,
        "stage2_paf": drawn.pafs,
        "stage3_heatmap": drawn.heatmaps,
        "stage4_heatmap": 1.5 * drawn.heatmaps,
    }
    found = figures(answers, drawn)
    assert found["stage2_paf/change"] == 0
    assert found["stage4_heatmap/change"] == pytest.approx(1 / 3)
    assert "stage1_paf/change" not in found
    assert "stage3_heatmap/change" not in found


def ramp(drawn):
    return np.broadcast_to(np.linspace(0.5, 2, CELLS, dtype=np.float32)[None, None, :, None], drawn.heatmaps.shape)


def without_wrist(drawn):
    heatmaps = np.array(drawn.heatmaps)
    heatmaps[1, ..., COCO.index["left_wrist"]] = 0
    return heatmaps


@pytest.mark.parametrize(
    ("heatmaps", "recall", "islands"),
    [
        (lambda drawn: tf.roll(drawn.heatmaps, 1, axis=2), None, 1),  # a cell away
        (lambda drawn: tf.roll(drawn.heatmaps, 3, axis=2), None, 0),
        (without_wrist, None, 3 / 4),  # one of four joints
        (ramp, 1, 0),  # a blur without a peak
    ],
)
def test_islands_are_found_near_by_alone(heatmaps, recall, islands):
    drawn = targets()
    found = measured(heatmaps(drawn), -drawn.pafs, drawn)
    assert found["stage2_heatmap/island_recall"] == pytest.approx(islands)
    assert recall is None or found["stage2_heatmap/recall"] == recall
    assert found["stage1_paf/magnitude"] == pytest.approx(1)
    assert found["stage1_paf/recall"] == found["stage1_paf/island_recall"] == 0, "a field points the wrong way"


def test_nothing_that_counts_is_zero_not_nan():
    drawn = targets(ignored=255)
    found = measured(drawn.heatmaps, drawn.pafs, drawn)
    assert set(found.values()) == {0}
