"""Measured in a child process: batches of people with augmentation and targets, from records and from JPEG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from podline.benchmark import plain_poses
from podline.benchmark.timing import in_turns
from podline.data.manifest import read_manifest
from podline.data.order import TrainingOrder
from podline.data.reader import SplitReader, open_split
from podline.input.pose_augmentation import augment_poses
from podline.input.pose_targets import compiled_targets
from podline.recipes.pose_settings import PoseAugmentationSettings, PoseTargetSettings
from podline.storage import open_store

_SPLIT = "train"
_FIELDS = ("image", "keypoints", "ignored")
# All that an augmentation can do, about as strong as it is used.
_AUGMENTATION = PoseAugmentationSettings(
    flip=True, rotation=30, smallest=0.7, largest=1.3, shift=0.1, brightness=0.1, contrast=0.2, saturation=0.3
)
_TARGETS = PoseTargetSettings()
_PARALLEL, _PREFETCHED = 2, 4


def batches_with_targets(root: str, folder: str, source: str, batch_size: int, repetitions: int) -> dict[str, Any]:
    """Seconds for a shuffled pass over a training split that ends with every batch's image and targets on the device.

    Both sides have made a batch before the clock starts: what XLA and tf.data trace and compile is not counted.

    Args:
        root: the store.
        folder: the data set's folder in it.
        source: the raw images that it was converted from.
        batch_size: examples in a batch; an incomplete last one is left out.
        repetitions: how often each side is timed.

    Returns:
        ``ours`` and ``other``: the seconds; ``examples``: how many a pass delivers.
    """
    store = open_store(root)
    manifest = read_manifest(store, folder)
    reader = open_split(store, folder, manifest, _SPLIT)
    side, batches = manifest.image_shape[0], len(reader) // batch_size
    targets = compiled_targets(side, _TARGETS)
    records = reader.gather(np.arange(len(reader)), ["image_id", "keypoints", "ignored"])
    files = [str(Path(source) / "train2017" / f"{number:012}.jpg") for number in records["image_id"].ravel()]

    def ours(count: int = batches) -> None:
        delivered = 0
        for images, keypoints, ignored in _records(reader, batch_size, count):
            made = targets(keypoints, ignored)
            delivered += len(images) * (made.heatmaps.shape[0] == len(images))
        _check(delivered, count)

    def other(count: int = batches) -> None:
        dataset = plain_poses.batches(
            files, records["keypoints"], records["ignored"], side=side, settings=_TARGETS, batch_size=batch_size
        )
        _check(sum(len(images) for images, *_targets in dataset.take(count)), count)

    def _check(delivered: int, count: int) -> None:
        if delivered != count * batch_size:
            raise AssertionError(f"{delivered} examples vs {count} batches of {batch_size}")

    ours(1)
    other(1)
    return in_turns(ours, other, repetitions)._asdict() | {"examples": batches * batch_size}


def _records(reader: SplitReader, batch_size: int, batches: int) -> tf.data.Dataset:
    """Augmented batches of our records, by as many threads as training has."""
    order = TrainingOrder(len(reader), batch_size, seed=0)

    def batch(step: np.ndarray) -> list[np.ndarray]:
        epoch, ids = order.batch(int(step))
        arrays = augment_poses(reader.gather(ids, _FIELDS), ids, _AUGMENTATION, order.seed, epoch, (127, 127, 127))
        return [arrays[name] for name in _FIELDS]

    shapes = [(batch_size, *values.shape[1:]) for values in reader.gather(np.array([0]), _FIELDS).values()]

    def in_tensorflow(step: tf.Tensor) -> list[tf.Tensor]:
        tensors = tf.numpy_function(batch, [step], [tf.uint8, tf.float32, tf.uint8], stateful=False)
        return [tf.ensure_shape(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)]

    return tf.data.Dataset.range(batches).map(in_tensorflow, num_parallel_calls=_PARALLEL).prefetch(_PREFETCHED)
