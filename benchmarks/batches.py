"""Measured in a child process: shuffled batches as host tensors, from the same TFRecord files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import plain
from benchmarks.other_readers import checked_pass
from benchmarks.timing import in_turns
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.input.pipeline import TrainingInput
from podline.recipes.settings import AugmentationSettings
from podline.store.opening import open_store

_SPLIT = "train"


def shuffled_batches(root: str, folder: str, batch_size: int, repetitions: int) -> dict[str, Any]:
    """Measure the seconds of one shuffled pass over a data set's training split.

    Our split is open, as in a training, and each of its records was read and checked before. TensorFlow's files are in
    the page cache.

    Args:
        root: the store.
        folder: the data set's folder in it.
        batch_size: examples in a batch; an incomplete last one is left out.
        repetitions: how often each side is timed.

    Returns:
        ``ours`` and ``other``: the seconds; ``examples``: how many a pass delivers.
    """
    sides = _sides(root, folder, batch_size)

    def passed(side: str) -> None:
        delivered = sum(1 for _ in sides[side]())
        if delivered != batches:
            raise AssertionError(f"{delivered} batches vs {batches}")

    batches = sum(1 for _ in sides["podline"]())
    passed("tf.data")
    seconds = in_turns(lambda: passed("podline"), lambda: passed("tf.data"), repetitions)
    return seconds._asdict() | {"examples": batches * batch_size}


def one_pass(root: str, folder: str, batch_size: int, side: str) -> dict[str, float]:
    """Measure a pass of one side, ``podline`` or ``tf.data``; see :func:`other_readers.checked_pass`."""
    dataset = _sides(root, folder, batch_size)[side]
    return checked_pass(lambda: map(_arrays, dataset()), batch_size)


def _arrays(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a batch of either side, without a copy."""
    images, labels = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch
    return images.numpy(), labels.numpy()


def _sides(root: str, folder: str, batch_size: int) -> dict[str, Callable[[], tf.data.Dataset]]:
    """Return, by name, what begins a pass over the training split."""
    store = open_store(root)
    manifest = read_manifest(store, folder)
    files = [store.local(f"{folder}/{shard.file}") for shard in manifest.split(_SPLIT).shards]
    height, width, channels = manifest.image_shape
    reader = open_split(store, folder, manifest, _SPLIT)
    order = TrainingOrder(len(reader), batch_size, seed=0)
    fields = ("image", "label")
    training = TrainingInput(reader, manifest, fields, order=order, augmentation=AugmentationSettings())
    return {
        "podline": lambda: training.dataset(0, order.steps_per_epoch),
        "tf.data": lambda: plain.shuffled_batches(files, (height, width, channels), batch_size),
    }
