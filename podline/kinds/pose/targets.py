"""Makes the targets of pose networks, heatmaps, part affinity fields and loss weights, on the device from keypoints.

The method is that of Cao et al.: "Realtime Multi-Person 2D Pose Estimation using Part Affinity Fields", CVPR 2017, with
two differences. A limb's field has soft edges: the vectors' length is a Gaussian of the distance to the limb, sideways
and beyond the ends. Where limbs of two people meet, the nearer limb defines the cell, because an average would cancel
at crossings.

All operations use arrays of fixed shape, except one loop over people, which ends at the batch's last labelled person.
"""

# pyright: standard
from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from podline.base.arrays import Tensor
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.settings import PoseTargetSettings

# A limb shorter than this, in pixels, has no direction.
_SHORTEST_LIMB = 1 / 128
# Distance, in standard deviations, at which a float32 Gaussian is exactly zero but its exponent still finite.
_FAR_AWAY = 1e6


class PoseTargets(NamedTuple):
    """The target maps of a network.

    Attributes:
        heatmaps: float32 (n, height, width, joints), 0…1: for each joint, closeness of the nearest person's joint.
        pafs: float32 (n, height, width, 2 × limbs): channels ``2 l`` and ``2 l + 1`` are x and y of a vector in the
            direction of limb ``l``, of length 1 or less; 0 channels if no stage outputs fields.
        weights: float32 (n, height, width, 1), 0…1: weight of a cell in the loss; 0 where people are not labelled.
    """

    heatmaps: tf.Tensor
    pafs: tf.Tensor
    weights: tf.Tensor


def pose_targets(
    keypoints: Tensor,
    ignored: Tensor,
    side: int,
    settings: PoseTargetSettings,
    skeleton: Skeleton,
    *,
    fields: bool = True,
) -> PoseTargets:
    """Compute the targets of a batch; a pure TensorFlow function with finite gradients everywhere.

    Args:
        keypoints: float32 (n, people, joints, 3): x and y in pixels of the network's input, and visibility; unlabelled
            joints and entries without a person are zeros.
        ignored: uint8 (n, m, m): 255 in crowds and unlabelled people, 0 outside, between at edges of moved masks;
            ``m`` is a multiple of the maps' side.
        side: side of the network's input, in pixels; a multiple of the stride.
        settings: stride and widths.
        skeleton: the joints and limbs.
        fields: whether to compute the fields.
    """
    cells = side // settings.stride
    places = (keypoints[..., :2] + 0.5) / settings.stride - 0.5
    labelled = keypoints[..., 2] > 0
    people = _people(labelled)
    heatmaps = _heatmaps(places, labelled, people, cells, settings.joint_sigma / settings.stride)
    pafs = _pafs(places, labelled, people, cells, settings, skeleton) if fields else heatmaps[:, :, :, :0]
    return PoseTargets(heatmaps, pafs, _weights(ignored, cells))


def _people(labelled: Tensor) -> tf.Tensor:
    """Return how many entries for people are needed up to the last labelled person of the batch, int32 ()."""
    occupied = tf.reduce_any(labelled, axis=(0, 2))
    return tf.reduce_max(tf.where(occupied, tf.range(1, tf.shape(occupied)[0] + 1), 0))


def _heatmaps(places: Tensor, labelled: Tensor, people: Tensor, cells: int, sigma: float) -> tf.Tensor:
    """Return the maximum of all people's Gaussians in each cell: products of a Gaussian along x and one along y."""
    offsets = (tf.range(cells, dtype=tf.float32)[:, None, None] - places[:, :, None]) / sigma
    # offsets: (n, people, cells, joints, 2), from each joint to the cells' centres along each axis
    along_x, along_y = tf.unstack(tf.exp(-0.5 * tf.square(offsets)), axis=-1)
    along_x = tf.where(labelled[:, :, None], along_x, 0.0)

    def draw(person: tf.Tensor, highest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return person + 1, tf.maximum(highest, along_y[:, person, :, None] * along_x[:, person, None])

    empty = tf.zeros_like(along_y[:, 0, :, None] * along_x[:, 0, None])
    return tf.while_loop(lambda person, _: person < people, draw, (0, empty))[1]


def _pafs(
    places: Tensor, labelled: Tensor, people: Tensor, cells: int, settings: PoseTargetSettings, skeleton: Skeleton
) -> tf.Tensor:
    """Return fields: in each cell the direction of the nearest person's limb, times a Gaussian of the distance."""
    sigma = settings.limb_sigma / settings.stride
    starts, ends = tf.gather(places, skeleton.starts, axis=2), tf.gather(places, skeleton.ends, axis=2)
    vectors = ends - starts
    squares = tf.reduce_sum(tf.square(vectors), axis=-1)
    drawn: Tensor = tf.gather(labelled, skeleton.starts, axis=2) & tf.gather(labelled, skeleton.ends, axis=2)
    drawn &= squares >= (_SHORTEST_LIMB / settings.stride) ** 2
    # Unlabelled limbs take the root of 1, which avoids 0/0 and the root's infinite slope at 0.
    lengths: Tensor = tf.sqrt(tf.where(drawn, squares, 1.0))
    directions = tf.where(drawn[..., None], vectors / lengths[..., None], 0.0)

    offsets = (tf.range(cells, dtype=tf.float32)[:, None, None] - starts[:, :, None]) / sigma
    offset_x, offset_y = tf.unstack(offsets, axis=-1)  # each (n, people, cells, limbs), in standard deviations
    x, y = tf.unstack(directions[:, :, None], axis=-1)
    along_x, along_y = offset_x * x, offset_y * y
    across_x, across_y = offset_x * -y + tf.where(drawn, 0.0, _FAR_AWAY)[:, :, None], offset_y * x
    lengths = (lengths / sigma)[:, :, None, None]

    def draw(person: tf.Tensor, nearest: Tensor, nearest_x: Tensor, nearest_y: Tensor) -> tuple[tf.Tensor, ...]:
        along = along_y[:, person, :, None] + along_x[:, person, None]
        across = across_y[:, person, :, None] + across_x[:, person, None]
        beyond = along - tf.clip_by_value(along, 0.0, lengths[:, person])
        distance = tf.square(across) + tf.square(beyond)
        nearer = distance < nearest
        return (
            person + 1,
            tf.minimum(distance, nearest),
            tf.where(nearer, x[:, person, None], nearest_x),
            tf.where(nearer, y[:, person, None], nearest_y),
        )

    empty = tf.zeros_like(along_y[:, 0, :, None] * along_x[:, 0, None])
    _, distance, x_parts, y_parts = tf.while_loop(
        lambda person, *_: person < people, draw, (0, empty + _FAR_AWAY**2, empty, empty)
    )
    strength = tf.exp(-0.5 * distance)
    pairs = tf.stack([strength * x_parts, strength * y_parts], axis=-1)
    return tf.reshape(pairs, (-1, cells, cells, 2 * len(skeleton.limbs)))


def _weights(ignored: Tensor, cells: int) -> tf.Tensor:
    """Compute the share of each cell that is not ignored."""
    finer = ignored.shape[1] // cells
    parts = tf.reshape(tf.cast(ignored, tf.float32), (-1, cells, finer, cells, finer, 1))
    return 1 - tf.reduce_mean(parts, axis=(2, 4)) / 255
