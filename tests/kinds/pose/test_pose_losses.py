from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from podline.kinds.pose.losses import stage_losses
from podline.kinds.pose.targets import PoseTargets

CELLS = 4


def random_targets(count=2, seed=0):
    rng = np.random.default_rng(seed)
    return PoseTargets(
        tf.constant(rng.random((count, CELLS, CELLS, 18)), tf.float32),
        tf.constant(rng.normal(size=(count, CELLS, CELLS, 40)), tf.float32),
        tf.constant(rng.choice([0.0, 0.5, 1.0], (count, CELLS, CELLS, 1)), tf.float32),
    )


def random_answers(count=2, seed=1):
    rng = np.random.default_rng(seed)
    channels = {"stage2_paf": 40, "stage1_paf": 40, "stage3_heatmap": 18}
    return {
        name: tf.constant(rng.normal(size=(count, CELLS, CELLS, wide)), tf.float32) for name, wide in channels.items()
    }


@pytest.mark.parametrize("emphasis", [0.0, 3.0])
def test_losses_are_the_definition(emphasis):
    targets, answers = random_targets(), random_answers()
    losses = stage_losses(answers, targets, emphasis)
    assert list(losses) == ["stage1_paf", "stage2_paf", "stage3_heatmap"]
    for name, loss in losses.items():
        target = targets.pafs if name.endswith("paf") else targets.heatmaps
        for example in range(2):
            weights = np.asarray(targets.weights)[example, ..., 0].astype(float)
            wanted = np.asarray(target)[example].astype(float)
            # Both channels of a field's vector count by its length.
            strength = np.repeat(np.hypot(wanted[..., ::2], wanted[..., 1::2]), 2, -1) if "paf" in name else wanted
            squares = (np.asarray(answers[name])[example] - wanted) ** 2
            squares = (squares * (1 + emphasis * strength)).sum(axis=-1)
            # sums of up to 640 float32 squares
            assert float(loss[example]) == pytest.approx((squares * weights).sum() / weights.sum(), rel=1e-5)


def test_what_is_ignored_has_no_influence_and_no_gradient():
    targets, answers = random_targets(), random_answers()
    ignored = np.asarray(targets.weights) == 0
    changed = {name: tf.where(ignored, 1e6, answer) for name, answer in answers.items()}
    for name, loss in stage_losses(answers, targets).items():
        assert np.asarray(loss).tolist() == np.asarray(stage_losses(changed, targets)[name]).tolist()
    answer = answers["stage3_heatmap"]
    for given in (targets, targets._replace(weights=tf.zeros_like(targets.weights))):
        ignored = np.broadcast_to(np.asarray(given.weights) == 0, answer.shape)
        with tf.GradientTape() as tape:
            tape.watch(answer)
            loss = tf.reduce_sum(stage_losses({"stage3_heatmap": answer}, given)["stage3_heatmap"])
        gradient = np.asarray(tape.gradient(loss, answer))
        assert not gradient[ignored].any()
        assert gradient[~ignored].all()
        assert loss == 0 or not ignored.all()
