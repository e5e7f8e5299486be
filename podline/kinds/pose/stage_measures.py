"""Computes the loss of a pose network's stages, and measures of each stage during training.

Nearly all of a target is zero, so a stage that outputs zero everywhere has a small loss and has gone unnoticed in
practice. The measures reveal such a stage.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from podline.documents.skeleton import Skeleton
from podline.kinds.pose.targets import PoseTargets

# Least strength at which a target's cell belongs to a joint or limb.
_ISLAND = 0.5
HEATMAP, PAF = "heatmap", "paf"

# The names of the sums for each kind of target, for each stage, and for the weights of all cells.
_OF_TARGETS = ("target", "islands", "peaks", "varied")
_OF_STAGES = ("answer", "error", "recalled", "found", "varied")
_CELLS = "cells"


def stage_losses(answers: Mapping[str, tf.Tensor], targets: PoseTargets, emphasis: float = 0.0) -> dict[str, tf.Tensor]:
    """Return each stage's loss for each example.

    The loss is the squared error, summed over the channels and averaged over the cells that count; an example without
    such cells has the loss 0. Every stage has its own loss, so that gradients reach the first stages undiminished (Wei
    et al.: "Convolutional Pose Machines", CVPR 2016).

    Nearly all of a target is empty, so a network first learns to output zero everywhere. An emphasis ``e`` multiplies
    the squared error of a channel by ``1 + e s``; ``s``, 0…1, is its target's value or the length of the vector.

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
        squares: tf.Tensor = tf.square(answers[name] - _target_of(name, targets))
        if emphasis:
            strength = _strength_of(name, targets)  # both channels of a vector have the vector's length
            squares *= 1 + emphasis * (tf.repeat(strength, 2, axis=-1) if kind_of(name) == PAF else strength)
        losses[name] = tf.math.divide_no_nan(tf.reduce_sum(weights * squares, axis=(1, 2, 3)), counted)
    return losses


def _target_of(stage: str, targets: PoseTargets) -> tf.Tensor:
    return targets.pafs if kind_of(stage) == PAF else targets.heatmaps


def _strength_of(stage: str, targets: PoseTargets) -> tf.Tensor:
    """Return each target cell's closeness to a joint or limb: float32 (n, height, width, joints or limbs), 0…1."""
    target = _target_of(stage, targets)
    return tf.norm(_vectors(target), axis=-1) if kind_of(stage) == PAF else target


def _vectors(paf: tf.Tensor) -> tf.Tensor:
    """Reshape a field's channels to vectors, (n, height, width, limbs, 2)."""
    return tf.reshape(paf, (*tf.unstack(tf.shape(paf)[:3]), -1, 2))


def stage_sums(answers: Mapping[str, tf.Tensor], targets: PoseTargets) -> dict[str, tf.Tensor]:
    """Return the sums behind :func:`stage_figures`, over the cells of each example.

    Each cell counts by its weight, as in the loss. Sums of several examples may be added.

    Args:
        answers: outputs by stage, float32 (n, height, width, channels).
        targets: targets of the same batch.

    Returns:
        A dictionary from the names of :func:`sum_names` to float32 (n,).
    """
    weights: tf.Tensor = targets.weights
    sums = {_CELLS: weights}
    for kind in _kinds(answers):
        target, strength = _target_of(kind, targets), _strength_of(kind, targets)
        islands = weights * tf.cast(strength >= _ISLAND, tf.float32)
        peaks = islands * tf.cast(strength >= _highest_around(strength), tf.float32)
        values = weights * tf.abs(target), islands, peaks, _deviations(target, weights)
        sums |= {f"{kind}/{name}": value for name, value in zip(_OF_TARGETS, values, strict=True)}
        for stage in answers:
            if kind_of(stage) == kind:
                answer = answers[stage]
                along = answer if kind == HEATMAP else _along(answer, target, strength)
                # A limb is a ridge without a peak, so fields count by their strength alone.
                highest = tf.where(answer >= _highest_around(answer), answer, 0.0) if kind == HEATMAP else along
                values = (
                    weights * tf.abs(answer),
                    weights * tf.abs(answer - target),
                    islands * tf.cast(along >= strength / 2, tf.float32),
                    peaks * tf.cast(_highest_around(highest) >= strength / 2, tf.float32),
                    _deviations(answer, weights),
                )
                sums |= {f"{stage}/{name}": value for name, value in zip(_OF_STAGES, values, strict=True)}
    return {name: tf.reduce_sum(sums[name], axis=(1, 2, 3)) for name in sorted(sums)}


def _along(fields: tf.Tensor, target: tf.Tensor, strength: tf.Tensor) -> tf.Tensor:
    """Project the vectors of fields on the target's direction: float32 (n, height, width, limbs)."""
    return tf.math.divide_no_nan(tf.reduce_sum(_vectors(fields) * _vectors(target), axis=-1), strength)


def _deviations(maps: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return each cell's distance from its map's mean over the image, times the cell's weight."""
    mean = tf.math.divide_no_nan(
        tf.reduce_sum(weights * maps, (1, 2), keepdims=True), tf.reduce_sum(weights, (1, 2), keepdims=True)
    )
    return weights * tf.abs(maps - mean)


def sum_names(stages: Sequence[str]) -> tuple[str, ...]:
    """Return the names of :func:`stage_sums`, sorted, for a network with these stages."""
    names = [_CELLS, *(f"{kind}/{name}" for kind in _kinds(stages) for name in _OF_TARGETS)]
    return tuple(sorted([*names, *(f"{stage}/{name}" for stage in stages for name in _OF_STAGES)]))


def stage_figures(sums: Mapping[str, float], stages: Sequence[str], skeleton: Skeleton) -> dict[str, float]:
    """Return the measures of every stage over all summed examples.

    - ``magnitude``: the output's mean strength relative to the target's; 1 is right.
    - ``variation``: the output's deviation from its mean over the image, relative to the target's; 1 is right, 0 is a
      constant output.
    - ``error``: mean absolute error of a channel.
    - ``recall``: share of the target's cells of at least 0.5 where the output is at least half the target (for a PAF:
      along the target's direction).
    - ``island_recall``: share of the target's peaks with an output peak of at least half the height in the same or a
      neighbouring cell (for a PAF: an output of at least half the strength along the peak's direction).

    The share of an empty set is 0.

    Returns:
        A dictionary from ``<stage>/<measure>`` to a number, sorted by name.
    """
    figures: dict[str, float] = {}
    channels = {HEATMAP: len(skeleton.joints), PAF: 2 * len(skeleton.limbs)}
    for stage in stages:
        kind = kind_of(stage)

        def share(part: str, whole: str, stage: str = stage) -> float:
            return sums[f"{stage}/{part}"] / sums[whole] if sums[whole] else 0.0

        figures |= {
            f"{stage}/magnitude": share("answer", f"{kind}/target"),
            f"{stage}/variation": share("varied", f"{kind}/varied"),
            f"{stage}/error": share("error", _CELLS) / channels[kind],
            f"{stage}/recall": share("recalled", f"{kind}/islands"),
            f"{stage}/island_recall": share("found", f"{kind}/peaks"),
        }
    return dict(sorted(figures.items()))


def _kinds(stages: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({kind_of(stage) for stage in stages}))


def kind_of(stage: str) -> str:
    """Return the kind of a stage's maps: :data:`HEATMAP` or :data:`PAF`."""
    return stage.rpartition("_")[2]


def _highest_around(maps: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(maps, 3, 1, "SAME")
