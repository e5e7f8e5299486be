"""What a pose network is trained for, without a training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_poses import POSE, RECIPE, SIDE, drawn, publish_poses

from podline.documents.skeleton import COCO
from podline.kinds.pose.objective import Pose
from podline.kinds.table import kind_of

STAGES = ("stage1_paf", "stage2_paf", "stage3_heatmap")
OBJECTIVE, TARGETS = Pose(POSE, COCO), kind_of(RECIPE).targets()


def batch_of(count: int = 4) -> dict[str, tf.Tensor]:
    columns = drawn(count, 3)
    return {name: tf.constant(columns[name]) for name in OBJECTIVE.fields}


def perfect(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {stage: batch["pafs" if stage.endswith("paf") else "heatmaps"] for stage in STAGES}


def test_perfect_answers_have_no_loss_and_find_every_joint():
    batch = OBJECTIVE.prepared(batch_of())
    terms = OBJECTIVE.terms(batch, perfect(batch))
    assert list(terms) == list(STAGES)
    assert all(np.count_nonzero(term) == 0 and term.shape == (4,) for term in terms.values())
    measures = OBJECTIVE.measures(batch, perfect(batch))
    assert set(measures) == set(OBJECTIVE.measured)
    sums = {name: float(np.sum(value)) for name, value in measures.items()}
    assert OBJECTIVE.headline(sums, 4) == {"joints found": 1.0}
    figures = OBJECTIVE.figures(sums, 4)["measures"]
    assert list(figures) == sorted(figures)
    assert (figures["stage2_paf/loss"], figures["stage2_paf/change"]) == (0, 0)
    assert figures["stage3_heatmap/magnitude"] == pytest.approx(1)


def test_losses_are_means_over_examples():
    batch = OBJECTIVE.prepared(batch_of())
    answers = {stage: 0.5 * answer for stage, answer in perfect(batch).items()}
    measures = OBJECTIVE.measures(batch, answers)
    figures = OBJECTIVE.figures({name: float(np.sum(value)) for name, value in measures.items()}, 4)["measures"]
    for stage, term in OBJECTIVE.terms(batch, answers).items():
        assert figures[f"{stage}/loss"] == pytest.approx(float(np.mean(term)))


@pytest.mark.parametrize(
    ("joint", "words"),
    [
        ((np.nan, 3, 1), "has joint 2 of person 1 at (nan, 3) with visibility 1"),
        ((3, np.inf, 1), "at (3, inf)"),
        ((3, SIDE, 2), f"at (3, {SIDE}) with visibility 2 vs places in an image of {SIDE} pixels"),
        ((3, 3, 7), "with visibility 7"),
    ],
)
def test_a_joint_that_cannot_be_is_refused_with_its_place(tmp_path, joint, words):
    manifest = publish_poses(tmp_path)
    columns = drawn(5, 0)
    assert TARGETS.check(columns, manifest) is None
    columns["keypoints"][3, 1, 2] = joint
    found = TARGETS.check(columns, manifest)
    assert found is not None
    assert found[0] == 3
    assert words in found[1]
