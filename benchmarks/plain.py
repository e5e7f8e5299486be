"""The plain way of doing each thing, as a tutorial would: the other side of the comparisons. Needs TensorFlow.

These are written to be as fast as their way allows (whole files are read and transposed at once, ``AUTOTUNE``
everywhere, a batch is parsed as a batch), so that a ratio says something about the way and not about its author.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# What TensorFlow's own guides shuffle with; a larger buffer is slower to fill and does not batch any faster.
SHUFFLE_BUFFER = 10_000


def example(image: npt.NDArray[np.uint8], label: int) -> tf.train.Example:
    """Build a record as the TFRecord tutorial does."""
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
        )
    )


def write_shard(path: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> None:
    """Write one file of records in a loop.

    Args:
        path: the file.
        images: uint8, (examples, height, width, channels).
        labels: int64, (examples,).
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(images, labels, strict=True):
            writer.write(example(image, int(label)).SerializeToString())


def convert(files: Iterable[Path], target: Path) -> int:
    """Turn CIFAR-10's .bin files into TFRecord files, one for one; return the number of examples.

    Args:
        files: files of rows of one label byte and 3,072 pixel bytes, in planes.
        target: the folder to write to.
    """
    written = 0
    for file in files:
        rows = np.fromfile(file, np.uint8).reshape(-1, 3073)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        write_shard(target / f"{file.stem}.tfrecord", images, rows[:, 0].astype(np.int64))
        written += len(rows)
    return written


def shuffled_batches(files: Iterable[Path], image_shape: tuple[int, int, int], batch_size: int) -> tf.data.Dataset:
    """One shuffled pass over TFRecord files.

    Args:
        files: files of records of ``image`` (raw bytes) and ``label``.
        image_shape: (height, width, channels).
        batch_size: examples in a batch; an incomplete last one is left out.

    Returns:
        Batches of (image uint8, label int64).
    """
    features = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def parse(records: tf.Tensor) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(records, features)
        pixels = tf.io.decode_raw(parsed["image"], tf.uint8)
        return tf.reshape(pixels, (batch_size, *image_shape)), parsed["label"]

    return (
        tf.data.TFRecordDataset([str(file) for file in files], num_parallel_reads=tf.data.AUTOTUNE)
        .shuffle(SHUFFLE_BUFFER)
        .batch(batch_size, drop_remainder=True)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
