"""What a pose network's stages do in training, in numbers that show what a loss hides.

Nearly all of a target is zero, so a stage that answers zero everywhere has a small loss, and a stage that hands on the
answer of the one before it has as small a one. Both have happened unseen; here they are findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from podline.data.keypoints import LIMBS
from podline.input.pose_targets import PoseTargets
from podline.training.pose_losses import target_of

# A cell of a target is part of a joint or a limb from here on.
_ISLAND = 0.5
# From here on, down or up, a stage is a finding.
COLLAPSED, COPIED = 0.05, 0.01

Measures = dict[str, tf.Tensor]


def stage_measures(answers: Mapping[str, tf.Tensor], targets: PoseTargets) -> Measures:
    """Measures of every stage over a batch, counted like the loss: a cell by its weight.

    - ``magnitude``: the answer's mean strength as a share of the target's; 0 is a collapse, 1 is right.
    - ``error``: mean absolute error of a channel.
    - ``recall``: share of the target's cells of at least 0.5 where the answer is at least half the target (for a PAF:
      along the target's direction).
    - ``island_recall``: share of the target's peaks with a peak of the answer of at least half the target's height in
      the same or a neighbouring cell (for a PAF: an answer of at least half the strength along the peak's direction).
    - ``change``: mean difference to the answer of the stage of the same kind before it, as a share of its strength;
      0 is a copy. Only from a kind's second stage on.

    Args:
        answers: by stage, float32 (n, height, width, channels).
        targets: of the same batch.

    Returns:
        ``<stage>/<measure>`` to a float32 scalar, sorted by name.
    """
    measures: Measures = {}
    before: dict[str, Any] = {}
    for stage in sorted(answers):
        answer, target = answers[stage], target_of(stage, targets)
        measures |= {f"{stage}/{name}": value for name, value in _measured(answer, target, targets.weights).items()}
        kind = stage.rpartition("_")[2]
        if kind in before:
            measures[f"{stage}/change"] = _ratio(answer - before[kind], answer, targets.weights)
        before[kind] = answer
    return dict(sorted(measures.items()))


def stage_findings(measures: Mapping[str, float]) -> tuple[str, ...]:
    """What is wrong with which stage, one line each.

    Args:
        measures: as :func:`stage_measures` gives them, as numbers; best averaged over some steps.
    """
    findings = []
    for name, value in sorted(measures.items()):
        stage, _, measure = name.partition("/")
        if measure == "magnitude" and value < COLLAPSED:
            findings.append(f"{stage} has collapsed: its answers are {value:.1%} as strong as the targets")
        if measure == "change" and value < COPIED:
            findings.append(f"{stage} copies the stage before it: their answers differ by {value:.1%}")
    return tuple(findings)


def _measured(answer: Any, target: Any, weights: Any) -> Measures:
    along, strength = _along(answer, target)
    islands = tf.cast(strength >= _ISLAND, tf.float32) * weights
    peaks = islands * tf.cast(strength >= _highest_around(strength), tf.float32)
    found = _found(answer, target, along)
    return {
        "magnitude": _ratio(answer, target, weights),
        "error": tf.reduce_sum(weights * tf.abs(answer - target)) / _at_least_one_cell(weights) / answer.shape[-1],
        "recall": tf.math.divide_no_nan(
            tf.reduce_sum(islands * tf.cast(along >= strength / 2, tf.float32)), tf.reduce_sum(islands)
        ),
        "island_recall": tf.math.divide_no_nan(
            tf.reduce_sum(peaks * tf.cast(found >= strength / 2, tf.float32)), tf.reduce_sum(peaks)
        ),
    }


def _along(answer: Any, target: Any) -> tuple[Any, Any]:
    """The answer's part in the target's direction, and the target's length; for a heatmap both maps as they are."""
    if answer.shape[-1] != 2 * len(LIMBS):
        return answer, target
    vectors, wanted = _vectors(answer), _vectors(target)
    length = tf.norm(wanted, axis=-1)
    return tf.math.divide_no_nan(tf.reduce_sum(vectors * wanted, axis=-1), length), length


def _vectors(paf: Any) -> Any:
    """A field's channels as vectors, (n, height, width, limbs, 2)."""
    return tf.reshape(paf, (*tf.unstack(tf.shape(paf)[:3]), len(LIMBS), 2))


def _found(answer: Any, target: Any, along: Any) -> Any:
    """The highest of the answer's peaks, or for a PAF of its parts along the target, in a cell and those around it."""
    if answer.shape[-1] == 2 * len(LIMBS):
        return _highest_around(along)
    peaks = tf.where(answer >= _highest_around(answer), answer, tf.zeros_like(target))
    return _highest_around(peaks)


def _highest_around(maps: Any) -> Any:
    return tf.nn.max_pool2d(maps, 3, 1, "SAME")


def _ratio(part: Any, whole: Any, weights: Any) -> Any:
    """How strong one is as a share of the other."""
    return tf.math.divide_no_nan(
        tf.reduce_sum(weights * tf.abs(part)),
        tf.reduce_sum(weights * tf.abs(whole)),
    )


def _at_least_one_cell(weights: Any) -> Any:
    return tf.maximum(tf.reduce_sum(weights), 1.0)
