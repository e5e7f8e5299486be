"""The loss of a pose network: every stage against its targets, where people are labelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from podline.input.pose_targets import PoseTargets


def stage_losses(answers: Mapping[str, tf.Tensor], targets: PoseTargets) -> dict[str, tf.Tensor]:
    """Each stage's loss of each example.

    The squared error, summed over the channels and averaged over the cells that count; an example in which no cell
    counts has the loss 0. Every stage has its own, so that gradients reach the first stages undiminished (Wei et al.:
    "Convolutional Pose Machines", CVPR 2016).

    Args:
        answers: by stage, float32 (n, height, width, channels); names end in ``paf`` or ``heatmap``.
        targets: of the same batch.

    Returns:
        By stage, sorted by name, float32 (n,).
    """
    weights: Any = targets.weights
    counted = tf.reduce_sum(weights, axis=(1, 2, 3))
    return {
        name: tf.math.divide_no_nan(
            tf.reduce_sum(weights * tf.square(answers[name] - target_of(name, targets)), axis=(1, 2, 3)), counted
        )
        for name in sorted(answers)
    }


def target_of(stage: str, targets: PoseTargets) -> Any:
    """What a stage is to answer: ``pafs`` or ``heatmaps``, by the end of its name."""
    return targets.pafs if stage.endswith("paf") else targets.heatmaps
