"""Measures of a pose network's stages during training.

Nearly all of a target is zero, so a stage that answers zero everywhere has a small loss, and a stage that hands on the
answer of the one before it has as small a one. Both have happened unseen; here they are findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from podline.documents.skeleton import Skeleton
from podline.kinds.pose.losses import strength_of, target_of, vectors
from podline.kinds.pose.targets import PoseTargets

# A cell of a target is part of a joint or a limb from here on.
_ISLAND = 0.5
_HEATMAP, _PAF = _KINDS = ("heatmap", "paf")

# What is summed of each kind of target, and of each stage.
_OF_TARGETS = ("target", "islands", "peaks", "varied")
_OF_STAGES = ("answer", "error", "recalled", "found", "varied")
_CHANGE, _CELLS = "change", "cells"


class _Wanted(NamedTuple):
    """The target of stages of one kind.

    Attributes:
        kind: ``heatmap`` or ``paf``.
        target: as it is drawn.
        strength: its length, (n, height, width, joints or limbs).
        islands: the weight of each cell where it is strong, of the strength's shape.
        peaks: the same where it is strongest.
    """

    kind: str
    target: tf.Tensor
    strength: tf.Tensor
    islands: tf.Tensor
    peaks: tf.Tensor

    @classmethod
    def of(cls, kind: str, targets: PoseTargets) -> _Wanted:
        strength = strength_of(kind, targets)
        islands = targets.weights * tf.cast(strength >= _ISLAND, tf.float32)
        highest = tf.cast(strength >= _highest_around(strength), tf.float32)
        return cls(kind, target_of(kind, targets), strength, islands, islands * highest)


def stage_sums(answers: Mapping[str, tf.Tensor], targets: PoseTargets) -> dict[str, tf.Tensor]:
    """Return the sums behind :func:`stage_figures`, over the cells of each example.

    All is counted like the loss: a cell by its weight. Sums of any examples may be added up.

    Args:
        answers: by stage, float32 (n, height, width, channels).
        targets: of the same batch.

    Returns:
        The names of :func:`sum_names` to float32 (n,).
    """
    weights: tf.Tensor = targets.weights
    wanted = {kind: _Wanted.of(kind, targets) for kind in _KINDS}
    sums = {_CELLS: weights}
    for kind, of_kind in wanted.items():
        target = of_kind.target
        values = weights * tf.abs(target), of_kind.islands, of_kind.peaks, _deviations(target, weights)
        sums |= {f"{kind}/{name}": value for name, value in zip(_OF_TARGETS, values, strict=True)}
    before: dict[str, tf.Tensor] = {}
    for stage in sorted(answers):
        kind, answer = _kind(stage), answers[stage]
        values = _of_stage(answer, wanted[kind], weights)
        sums |= {f"{stage}/{name}": value for name, value in zip(_OF_STAGES, values, strict=True)}
        if kind in before:
            sums[f"{stage}/{_CHANGE}"] = weights * tf.abs(answer - before[kind])
        before[kind] = answer
    return {name: tf.reduce_sum(sums[name], axis=(1, 2, 3)) for name in sorted(sums)}


def _of_stage(answer: tf.Tensor, wanted: _Wanted, weights: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return the values of :data:`_OF_STAGES` of each cell."""
    half = wanted.strength / 2
    along, highest = _along(answer, wanted), _peaks(answer, wanted)
    return (
        weights * tf.abs(answer),
        weights * tf.abs(answer - wanted.target),
        wanted.islands * tf.cast(along >= half, tf.float32),
        wanted.peaks * tf.cast(highest >= half, tf.float32),
        _deviations(answer, weights),
    )


def _deviations(maps: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return each cell's distance from its map's mean over the image, by its weight."""
    mean = tf.math.divide_no_nan(
        tf.reduce_sum(weights * maps, (1, 2), keepdims=True), tf.reduce_sum(weights, (1, 2), keepdims=True)
    )
    return weights * tf.abs(maps - mean)


def sum_names(stages: Sequence[str]) -> tuple[str, ...]:
    """Return the names of :func:`stage_sums`, sorted, for a network with these stages."""
    names = [_CELLS, *(f"{kind}/{name}" for kind in _KINDS for name in _OF_TARGETS)]
    for place, stage in enumerate(stages):
        again = _kind(stage) in map(_kind, stages[:place])
        names += [f"{stage}/{name}" for name in (*_OF_STAGES, *([_CHANGE] if again else ()))]
    return tuple(sorted(names))


def stage_figures(sums: Mapping[str, float], stages: Sequence[str], skeleton: Skeleton) -> dict[str, float]:
    """Measures of every stage over all examples that were summed up.

    - ``magnitude``: the answer's mean strength as a share of the target's; 1 is right.
    - ``variation``: how much the answer differs from its mean over the image, as a share of what the target does; 1 is
      right, 0 is an answer that is the same everywhere, be it zero.
    - ``error``: mean absolute error of a channel.
    - ``recall``: share of the target's cells of at least 0.5 where the answer is at least half the target (for a PAF:
      along the target's direction).
    - ``island_recall``: share of the target's peaks with a peak of the answer of at least half the target's height in
      the same or a neighbouring cell (for a PAF: an answer of at least half the strength along the peak's direction).
    - ``change``: mean difference to the answer of the stage of the same kind before it, as a share of its strength;
      0 is a copy. Only from a kind's second stage on.

    A share of nothing is 0.

    Returns:
        ``<stage>/<measure>`` to a number, sorted by name.
    """
    figures: dict[str, float] = {}
    channels = {_HEATMAP: len(skeleton.joints), _PAF: 2 * len(skeleton.limbs)}
    for stage in stages:
        kind = _kind(stage)

        def share(part: str, whole: str, stage: str = stage) -> float:
            return sums[f"{stage}/{part}"] / sums[whole] if sums[whole] else 0.0

        figures |= {
            f"{stage}/magnitude": share("answer", f"{kind}/target"),
            f"{stage}/variation": share("varied", f"{kind}/varied"),
            f"{stage}/error": share("error", _CELLS) / channels[kind],
            f"{stage}/recall": share("recalled", f"{kind}/islands"),
            f"{stage}/island_recall": share("found", f"{kind}/peaks"),
        }
        if f"{stage}/{_CHANGE}" in sums:
            figures[f"{stage}/{_CHANGE}"] = share(_CHANGE, f"{stage}/answer")
    return dict(sorted(figures.items()))


def _kind(stage: str) -> str:
    return stage.rpartition("_")[2]


def _along(answer: tf.Tensor, wanted: _Wanted) -> tf.Tensor:
    """Project the output on the target's direction; return a heatmap unchanged."""
    if wanted.kind == _HEATMAP:
        return answer
    products = tf.reduce_sum(vectors(answer) * vectors(wanted.target), axis=-1)
    return tf.math.divide_no_nan(products, wanted.strength)


def _peaks(answer: tf.Tensor, wanted: _Wanted) -> tf.Tensor:
    """Return the highest output peak in a cell and its neighbours.

    Of a field, the largest of its parts along the target: a limb is a ridge, without a peak.
    """
    if wanted.kind == _PAF:
        return _highest_around(_along(answer, wanted))
    return _highest_around(tf.where(answer >= _highest_around(answer), answer, tf.zeros_like(answer)))


def _highest_around(maps: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(maps, 3, 1, "SAME")
