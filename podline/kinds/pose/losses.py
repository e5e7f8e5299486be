"""The loss of a pose network: every stage against its targets, where people are labelled."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from podline.kinds.pose.targets import PoseTargets


def stage_losses(answers: Mapping[str, tf.Tensor], targets: PoseTargets, emphasis: float = 0.0) -> dict[str, tf.Tensor]:
    """Each stage's loss of each example.

    The squared error, summed over the channels and averaged over the cells that count; an example in which no cell
    counts has the loss 0. Every stage has its own, so that gradients reach the first stages undiminished (Wei et al.:
    "Convolutional Pose Machines", CVPR 2016).

    Nearly all of a target is empty, so a network is first taught to answer nothing anywhere. With an emphasis ``e`` the
    square of a channel where its target has the strength ``s`` (0…1, see :func:`strength_of`) counts ``1 + e s`` times.

    Args:
        answers: by stage, float32 (n, height, width, channels); names end in ``paf`` or ``heatmap``.
        targets: of the same batch.
        emphasis: see above; not negative.

    Returns:
        By stage, sorted by name, float32 (n,).
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
    """Return the target of a stage: ``pafs`` or ``heatmaps``, by the end of its name."""
    return targets.pafs if stage.endswith("paf") else targets.heatmaps


def strength_of(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return each cell's closeness to a joint or a limb: a heatmap's value, the length of a field's vector.

    Returns:
        float32 (n, height, width, joints or limbs), 0…1.
    """
    target = target_of(stage, targets)
    return tf.norm(vectors(target), axis=-1) if stage.endswith("paf") else target


def vectors(paf: tf.Tensor) -> tf.Tensor:
    """Reshape a field's channels to vectors, (n, height, width, limbs, 2)."""
    return tf.reshape(paf, (*tf.unstack(tf.shape(paf)[:3]), -1, 2))


def _channel_strength(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return the magnitude for each output channel; both channels of a vector get the vector's length."""
    strength = strength_of(stage, targets)
    return tf.repeat(strength, 2, axis=-1) if stage.endswith("paf") else strength
