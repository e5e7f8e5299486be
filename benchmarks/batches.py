"""Passes over shuffled batches of host tensors in a child process: Podline and tf.data read the same TFRecord files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import plain
from benchmarks.other_readers import checked_pass
from benchmarks.timing import in_turns, seconds_of
from podline.data.order import TrainingOrder
from podline.data.reader import open_split
from podline.documents.manifest import read_manifest
from podline.input.pipeline import TrainingInput
from podline.recipes.settings import AugmentationSettings
from podline.store.opening import open_store

_SPLIT = "train"


def shuffled_batches(root: str, folder: str, batch_size: int, repetitions: int) -> dict[str, Any]:
    """Measure shuffled passes over a data set's training split.

    As in a training, Podline's reader is open and has checked each record before. TensorFlow's files are in the page
    cache.

    Args:
        root: root of the store.
        folder: the data set's folder in the store.
        batch_size: examples in a batch; an incomplete last batch is left out.
        repetitions: number of passes of each side.

    Returns:
        ``seconds``: ``ours`` and ``other`` → seconds of each pass; ``examples``: the number in a pass.
    """
    sides = _sides(root, folder, batch_size)

    def passed(side: str) -> None:
        delivered = sum(1 for _ in sides[side]())
        if delivered != batches:
            raise AssertionError(f"{side}: got {delivered} batches, expected {batches}")

    batches = sum(1 for _ in sides["podline"]())
    passed("tf.data")
    timed = {
        "ours": lambda: seconds_of(lambda: passed("podline")),
        "other": lambda: seconds_of(lambda: passed("tf.data")),
    }
    return {"seconds": in_turns(timed, repetitions), "examples": batches * batch_size}


def one_pass(root: str, folder: str, batch_size: int, side: str) -> dict[str, float]:
    """Measure a pass of ``podline`` or ``tf.data``; see :func:`benchmarks.other_readers.checked_pass`."""
    dataset = _sides(root, folder, batch_size)[side]
    return checked_pass(lambda: map(_arrays, dataset()), batch_size)


def _arrays(batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of a batch as NumPy arrays, without a copy."""
    images, labels = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch
    return images.numpy(), labels.numpy()


def _sides(root: str, folder: str, batch_size: int) -> dict[str, Callable[[], tf.data.Dataset]]:
    """Return name → a function that returns the batches of a pass over the training split."""
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
