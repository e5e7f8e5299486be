"""The plain side of the comparisons: code as in a tutorial. Needs TensorFlow.

This code is as fast as the tutorials' methods allow: files are read and transposed as a whole, ``AUTOTUNE`` is used
everywhere, and batches are parsed as batches. So a ratio compares the methods, not the care of their authors.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# The buffer of TensorFlow's guides; a larger buffer takes longer to fill, and batches are not faster.
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
        path: path of the file to write.
        images: uint8, (examples, height, width, channels).
        labels: int64, (examples,).
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(images, labels, strict=True):
            writer.write(example(image, int(label)).SerializeToString())


def convert(files: Iterable[Path], target: Path) -> int:
    """Convert each of CIFAR-10's .bin files to a TFRecord file; return the number of examples.

    Args:
        files: the files; a row has a label byte and 3,072 pixel bytes, in planes.
        target: the folder for the TFRecord files.
    """
    written = 0
    for file in files:
        rows = np.fromfile(file, np.uint8).reshape(-1, 3073)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        write_shard(target / f"{file.stem}.tfrecord", images, rows[:, 0].astype(np.int64))
        written += len(rows)
    return written


def shuffled_batches(files: Iterable[Path], image_shape: tuple[int, int, int], batch_size: int) -> tf.data.Dataset:
    """Return the batches of a shuffled pass over TFRecord files.

    Args:
        files: the files; a record has ``image`` (raw bytes) and ``label``.
        image_shape: (height, width, channels).
        batch_size: examples in a batch; an incomplete last batch is left out.

    Returns:
        Batches of image uint8 (n, height, width, channels) and label int64 (n,).
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
