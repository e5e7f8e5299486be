"""Passes over batches of augmented people with targets in a child process: from records, and from JPEG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.timing import in_turns, seconds_of
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.documents.skeleton import COCO
from podline.input.pipeline import TrainingInput
from podline.kinds.pose.settings import PoseAugmentationSettings, PoseTargetSettings
from podline.kinds.pose.targets import pose_targets
from podline.store.opening import open_store

_SPLIT = "train"
# All kinds of augmentation, about as strong as in a recipe.
_AUGMENTATION = PoseAugmentationSettings(
    flip=True, rotation=30, smallest=0.7, largest=1.3, shift=0.1, brightness=0.1, contrast=0.2, saturation=0.3
)
_TARGETS = PoseTargetSettings()


def batches_with_targets(root: str, folder: str, source: str, batch_size: int, repetitions: int) -> dict[str, Any]:
    """Measure shuffled passes over a training split, until each batch's images and targets are on the device.

    Both sides make a batch before they are timed, so tracing and compiling are not counted.

    Args:
        root: root of the store.
        folder: the data set's folder in the store.
        source: the folder with the data set's raw images.
        batch_size: examples in a batch; an incomplete last batch is left out.
        repetitions: number of passes of each side.

    Returns:
        ``seconds``: ``ours`` and ``other`` → seconds of each pass; ``examples``: the number in a pass.
    """
    store = open_store(root)
    manifest = read_manifest(store, folder)
    reader = open_split(store, folder, manifest, _SPLIT)
    side, batches = manifest.image_shape[0], len(reader) // batch_size
    # With XLA, a CPU needs a quarter of the time.
    targets = tf.function(
        lambda keypoints, ignored: pose_targets(keypoints, ignored, side, _TARGETS, manifest.skeleton), jit_compile=True
    )
    order = TrainingOrder(len(reader), batch_size, seed=0)
    feed = TrainingInput(reader, manifest, ("image", "keypoints", "ignored"), order, _AUGMENTATION)
    records = reader.gather(np.arange(len(reader)), ["image_id", "keypoints", "ignored"])
    files = [str(Path(source) / "train2017" / f"{number:012}.jpg") for number in records["image_id"].ravel()]

    def ours(count: int = batches) -> None:
        delivered = 0
        for batch in feed.dataset(0, count):
            made = targets(batch["keypoints"], batch["ignored"])
            delivered += len(batch["image"]) * (made.heatmaps.shape[0] == len(batch["image"]))
        _check(delivered, count)

    def other(count: int = batches) -> None:
        dataset = plain_batches(
            files, records["keypoints"], records["ignored"], side=side, settings=_TARGETS, batch_size=batch_size
        )
        _check(sum(len(images) for images, *_targets in dataset.take(count)), count)

    def _check(delivered: int, count: int) -> None:
        if delivered != count * batch_size:
            raise AssertionError(f"got {delivered} examples, expected {count} batches of {batch_size}")

    ours(1)
    other(1)
    seconds = in_turns({"ours": lambda: seconds_of(ours), "other": lambda: seconds_of(other)}, repetitions)
    return {"seconds": seconds, "examples": batches * batch_size}


def plain_batches(
    files: Sequence[str],
    keypoints: npt.NDArray[np.float32],
    ignored: npt.NDArray[np.uint8],
    *,
    side: int,
    settings: PoseTargetSettings,
    batch_size: int,
) -> tf.data.Dataset:
    """Return the batches of a shuffled pass by tf.data over JPEG files, half of them mirrored, with targets.

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
