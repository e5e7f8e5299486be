"""Computes the loss of a pose network: every stage against its targets, without cells of unlabelled people."""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from podline.kinds.pose.targets import PoseTargets


def stage_losses(answers: Mapping[str, tf.Tensor], targets: PoseTargets, emphasis: float = 0.0) -> dict[str, tf.Tensor]:
    """Return each stage's loss for each example.

    The loss is the squared error, summed over the channels and averaged over the cells that count; an example without
    such cells has the loss 0. Every stage has its own loss, so that gradients reach the first stages undiminished (Wei
    et al.: "Convolutional Pose Machines", CVPR 2016).

    Nearly all of a target is empty, so a network first learns to output zero everywhere. An emphasis ``e`` multiplies
    the squared error of a channel by ``1 + e s``; ``s`` is the strength of its target (0…1, see :func:`strength_of`).

    Args:
        answers: outputs by stage, float32 (n, height, width, channels); names end in ``paf`` or ``heatmap``.
        targets: targets of the same batch.
        emphasis: the ``e`` above; 0 or more.

    Returns:
        Losses by stage, sorted by name, float32 (n,).
    """
    weights: tf.Tensor = targets.weights
    counted = tf.reduce_sum(weights, axis=(1, 2, 3))
    losses = {}
    for name in sorted(answers):
        squares: tf.Tensor = tf.square(answers[name] - target_of(name, targets))
        if emphasis:
            squares *= 1 + emphasis * _channel_strength(name, targets)
        losses[name] = tf.math.divide_no_nan(tf.reduce_sum(weights * squares, axis=(1, 2, 3)), counted)
    return losses


def target_of(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return the target of a stage: ``pafs`` if the stage's name ends in ``paf``, else ``heatmaps``."""
    return targets.pafs if stage.endswith("paf") else targets.heatmaps


def strength_of(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return each cell's closeness to a joint or limb: a heatmap's value, or the length of a field's vector.

    Returns:
        float32 (n, height, width, joints or limbs), 0…1.
    """
    target = target_of(stage, targets)
    return tf.norm(vectors(target), axis=-1) if stage.endswith("paf") else target


def vectors(paf: tf.Tensor) -> tf.Tensor:
    """Reshape a field's channels to vectors, (n, height, width, limbs, 2)."""
    return tf.reshape(paf, (*tf.unstack(tf.shape(paf)[:3]), -1, 2))


def _channel_strength(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return the target's strength for each output channel; both channels of a vector have the vector's length."""
    strength = strength_of(stage, targets)
    return tf.repeat(strength, 2, axis=-1) if stage.endswith("paf") else strength
