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


def test_islands_are_found_a_cell_away_but_not_three():
    drawn = targets()
    for cells, recall in ((1, 1), (3, 0)):
        shifted = tf.roll(drawn.heatmaps, cells, axis=2)
        assert measured(shifted, drawn.pafs, drawn)["stage2_heatmap/island_recall"] == recall


def test_one_of_four_joints_is_missed():
    drawn = targets()
    heatmaps = np.array(drawn.heatmaps)
    heatmaps[1, ..., COCO.index["left_wrist"]] = 0
    assert measured(heatmaps, drawn.pafs, drawn)["stage2_heatmap/island_recall"] == pytest.approx(3 / 4)


def test_a_blur_without_a_peak_finds_no_island():
    drawn = targets()
    ramp = np.broadcast_to(np.linspace(0.5, 2, CELLS, dtype=np.float32)[None, None, :, None], drawn.heatmaps.shape)
    found = measured(ramp, drawn.pafs, drawn)
    assert found["stage2_heatmap/recall"] == 1
    assert found["stage2_heatmap/island_recall"] == 0


def test_a_field_that_points_the_wrong_way_recalls_nothing():
    drawn = targets()
    found = measured(drawn.heatmaps, -drawn.pafs, drawn)
    assert found["stage1_paf/magnitude"] == pytest.approx(1)
    assert found["stage1_paf/recall"] == found["stage1_paf/island_recall"] == 0


def test_sums_of_parts_are_those_of_the_whole():
    drawn = targets()
    answers = {"stage1_paf": 0.3 * drawn.pafs, "stage2_heatmap": 0.7 * drawn.heatmaps}
    whole = stage_sums(answers, drawn)
    for place in range(2):
        part = slice(place, place + 1)
        alone = stage_sums(
            {name: answer[part] for name, answer in answers.items()}, type(drawn)(*(t[part] for t in drawn))
        )
        for name, value in alone.items():
            np.testing.assert_allclose(value[0], whole[name][place], rtol=1e-5)


def test_nothing_that_counts_is_zero_not_nan():
    drawn = targets(ignored=255)
    found = measured(drawn.heatmaps, drawn.pafs, drawn)
    assert set(found.values()) == {0}
