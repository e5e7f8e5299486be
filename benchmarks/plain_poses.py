"""The plain input of a pose network: tf.data decodes each JPEG file and computes each example's targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.documents.skeleton import COCO
from podline.kinds.pose.settings import PoseTargetSettings
from podline.kinds.pose.targets import pose_targets


def batches(
    files: Sequence[str],
    keypoints: npt.NDArray[np.float32],
    ignored: npt.NDArray[np.uint8],
    *,
    side: int,
    settings: PoseTargetSettings,
    batch_size: int,
) -> tf.data.Dataset:
    """Return the batches of a shuffled pass over JPEG files; half of the images are mirrored.

    Args:
        files: the paths of the n images.
        keypoints: float32 (n, people, 18, 3), in pixels of the square.
        ignored: uint8 (n, m, m).
        side: side in pixels of the square to which images are padded.
        settings: the settings of the targets.
        batch_size: examples in a batch; an incomplete last batch is left out.

    Returns:
        Batches of image uint8 (n, side, side, 3), heatmaps, PAFs and weights.
    """

    def example(file: Any, poses: Any, mask: Any) -> tuple[Any, ...]:
        image: Any = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        image = tf.cast(tf.image.resize_with_pad(image, side, side), tf.uint8)
        if tf.random.uniform([]) < 0.5:
            image, mask, poses = image[:, ::-1], mask[:, ::-1], _mirrored(poses, side)
        targets = pose_targets(poses[None], mask[None], side, settings, COCO)
        return image, *(values[0] for values in targets)

    dataset = tf.data.Dataset.from_tensor_slices((list(files), keypoints, ignored)).shuffle(len(files))
    return (
        dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def _mirrored(poses: Any, side: int) -> Any:
    swapped = tf.gather(poses, COCO.mirror, axis=1)
    x = tf.where(swapped[..., 2] > 0, side - 1 - swapped[..., 0], swapped[..., 0])
    return tf.stack([x, swapped[..., 1], swapped[..., 2]], axis=-1)
