"""Heatmaps, fields and weights are their definition, for each image alone, compiled or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from podline.documents.skeleton import COCO
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.targets import pose_targets

SIDE, STRIDE, CELLS = 64, 8, 8
SETTINGS = PoseTargetSettings(stride=STRIDE, joint_sigma=6, limb_sigma=5)
NOTHING_IGNORED = np.zeros((1, CELLS, CELLS), np.uint8)


def distance_to_segment(point, start, end):
    vector = end - start
    share = np.clip((point - start) @ vector / (vector @ vector), 0, 1)
    return np.linalg.norm(point - start - share * vector)


def some_people(count=3, seed=0):
    rng = np.random.default_rng(seed)
    poses = np.zeros((count, 18, 3), np.float32)
    poses[..., :2] = rng.integers(0, SIDE * 64, (count, 18, 2)) / 64
    poses[..., 2] = rng.integers(0, 3, (count, 18))
    poses[poses[..., 2] == 0] = 0
    return poses


def targets(poses, ignored=NOTHING_IGNORED):
    """The targets of one image with some people."""
    drawn = pose_targets(poses[None], ignored, SIDE, SETTINGS, COCO)
    return [np.asarray(values)[0] for values in drawn]


def plainly_drawn(poses):
    """The definition, cell by cell."""
    heatmaps, pafs = np.zeros((CELLS, CELLS, 18)), np.zeros((CELLS, CELLS, 2 * len(COCO.limbs)))
    for row in range(CELLS):
        for column in range(CELLS):
            centre = np.array([column, row]) * STRIDE + (STRIDE - 1) / 2
            for joint in range(18):
                distances = [np.linalg.norm(person[joint, :2] - centre) for person in poses if person[joint, 2]]
                heatmaps[row, column, joint] = max((math.exp(-(d**2) / 2 / 6**2) for d in distances), default=0)
            for limb, (start, end) in enumerate(COCO.limbs):
                nearest = math.inf
                for person in poses:
                    a, b = person[COCO.index[start]].astype(float), person[COCO.index[end]].astype(float)
                    if a[2] and b[2] and (distance := distance_to_segment(centre, a[:2], b[:2])) < nearest:
                        nearest = distance
                        unit = (b - a)[:2] / np.linalg.norm((b - a)[:2])
                        pafs[row, column, 2 * limb : 2 * limb + 2] = unit * math.exp(-(distance**2) / 2 / 5**2)
    return heatmaps, pafs


@pytest.mark.parametrize("people", [3, 2, 0])
def test_targets_are_the_definition_cell_by_cell(people):
    poses = some_people(people, seed=people)
    ignored = np.zeros((1, 2 * CELLS, 2 * CELLS), np.uint8)
    ignored[0, 0, 0] = ignored[0, 4, 4:6] = ignored[0, -2:, -2:] = 255
    heatmaps, pafs, weights = targets(np.concatenate([np.zeros((1, 18, 3), np.float32), poses]), ignored)
    assert (weights[0, 0, 0], weights[2, 2, 0], weights[-1, -1, 0]) == (0.75, 0.5, 0), "the share that counts"
    assert np.count_nonzero(weights < 1) == 3
    expected_heatmaps, expected_pafs = plainly_drawn(poses)
    # float32 distances of up to 16 standard deviations, squared
    np.testing.assert_allclose(heatmaps, expected_heatmaps, atol=1e-5)
    np.testing.assert_allclose(pafs, expected_pafs, atol=1e-5)


def test_an_image_does_not_depend_on_its_batch_and_compiled_targets_are_the_same():
    poses = np.stack([some_people(3, seed) for seed in range(3)])
    poses[1, 1:] = 0
    ignored = np.random.default_rng(0).integers(0, 256, (3, 2 * CELLS, 2 * CELLS)).astype(np.uint8)
    plain = pose_targets(poses, ignored, SIDE, SETTINGS, COCO)
    for index, people in enumerate(poses):
        alone = targets(people, ignored[index : index + 1])
        assert all(np.asarray(batch)[index].tobytes() == one.tobytes() for batch, one in zip(plain, alone, strict=True))
    compiled = tf.function(lambda *inputs: pose_targets(*inputs, SIDE, SETTINGS, COCO), jit_compile=True)
    for expected, made in zip(plain, compiled(poses, ignored), strict=True):
        np.testing.assert_allclose(made, expected, atol=1e-5)
