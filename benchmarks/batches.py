"""Measured in a child process: shuffled batches as host tensors, from the same TFRecord files."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from benchmarks import plain
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
    store = open_store(root)
    manifest = read_manifest(store, folder)
    split = manifest.split(_SPLIT)
    files = [store.local(f"{folder}/{shard.file}") for shard in split.shards]
    height, width, channels = manifest.image_shape
    batches = split.records // batch_size

    reader = open_split(store, folder, manifest, _SPLIT)
    order = TrainingOrder(len(reader), batch_size, seed=0)
    fields = ("image", "label")
    training = TrainingInput(reader, manifest, fields, order=order, augmentation=AugmentationSettings())

    def ours() -> None:
        _exhaust(training.dataset(0, order.steps_per_epoch))

    def other() -> None:
        _exhaust(plain.shuffled_batches(files, (height, width, channels), batch_size))

    def _exhaust(dataset: tf.data.Dataset) -> None:
        delivered = sum(1 for _ in dataset)
        if delivered != batches:
            raise AssertionError(f"{delivered} batches vs {batches}")

    ours()
    other()
    return in_turns(ours, other, repetitions)._asdict() | {"examples": batches * batch_size}
