"""Measured in a child process: writing a shard, and what a label and a pixel cost as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks import plain
from benchmarks.timing import in_turns
from podline.data.records import Feature, RecordLayout, layout_of
from podline.data.shards import CHUNK_BYTES
from podline.data.tfrecord import seal

IMAGE_SHAPE = (32, 32, 3)
CLASSES = 10
BATCH_SIZE = 1024

# Turns a block of records into what a training step is given.
Finish = Callable[[RecordLayout, npt.NDArray[np.uint8]], object]


def drawn(examples: int) -> dict[str, np.ndarray]:
    """Records of noise, of CIFAR-10's shape: ``image`` uint8 (examples, 32, 32, 3), ``label`` int64 (examples,)."""
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (examples, *IMAGE_SHAPE), np.uint8),
        "label": random.integers(0, CLASSES, examples, np.int64),
    }


def cifar_layout() -> RecordLayout:
    """The layout of CIFAR-10's records."""
    return layout_of([Feature("image", "uint8", IMAGE_SHAPE), Feature("label", "int64", ())])


def write_shard(folder: str, examples: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds to write one TFRecord file: chunks of frames, as the conversion does, against ``tf.train.Example``.

    Both sides write the same records and nothing else: what the conversion does beside that (order, checksum,
    statistics) is measured with the whole job.
    """
    columns, layout = drawn(examples), cifar_layout()
    path = Path(folder) / "shard.tfrecord"
    seconds = in_turns(
        lambda: write_chunks(path, layout, columns),
        lambda: plain.write_shard(path, columns["image"], columns["label"]),
        repetitions,
        before=lambda: path.unlink(missing_ok=True),
    )
    return seconds._asdict()


def labels(folder: str, examples: int, repetitions: int) -> dict[str, Any]:
    """A label stored as a scalar and made one-hot on the device, against one stored as a float32 one-hot vector.

    Returns:
        ``ours`` and ``other``: seconds for a pass of shuffled batches up to the device; ``bytes``: of a record in the
        file, for each side; ``bytes_100``: the same with CIFAR-100's classes.
    """
    columns = drawn(examples)
    one_hot = columns | {"label": np.eye(CLASSES, dtype=np.float32)[columns["label"]]}

    def from_scalar(layout: RecordLayout, block: npt.NDArray[np.uint8]) -> object:
        return tf.constant(layout.values(block, "image")), tf.one_hot(layout.values(block, "label"), CLASSES)

    def from_vector(layout: RecordLayout, block: npt.NDArray[np.uint8]) -> object:
        return tf.constant(layout.values(block, "image")), tf.constant(layout.values(block, "label"))

    image, scalar = Feature("image", "uint8", IMAGE_SHAPE), cifar_layout()
    vector, vector_100 = (layout_of([image, Feature("label", "float32", (n,))]) for n in (CLASSES, 100))
    ours = _pass(Path(folder) / "scalar.tfrecord", scalar, columns, from_scalar)
    other = _pass(Path(folder) / "vector.tfrecord", vector, one_hot, from_vector)
    return in_turns(ours, other, repetitions)._asdict() | {
        "bytes": [scalar.frame_length, vector.frame_length],
        "bytes_100": [scalar.frame_length, vector_100.frame_length],
    }


def pixels(folder: str, examples: int, repetitions: int) -> dict[str, Any]:
    """Pixels stored as uint8 and normalised on the device, against pixels stored as normalised float32.

    Returns:
        As :func:`labels`, without ``bytes_100``.
    """
    columns = drawn(examples)
    mean, std = np.float32(127.5), np.float32(73.9)

    def from_integers(layout: RecordLayout, block: npt.NDArray[np.uint8]) -> object:
        return (tf.cast(tf.constant(layout.values(block, "image")), tf.float32) - mean) / std

    def from_floats(layout: RecordLayout, block: npt.NDArray[np.uint8]) -> object:
        return tf.constant(layout.values(block, "image"))

    integers = cifar_layout()
    floats = layout_of([Feature("image", "float32", IMAGE_SHAPE), Feature("label", "int64", ())])
    normalised = columns | {"image": (columns["image"].astype(np.float32) - mean) / std}
    ours = _pass(Path(folder) / "uint8.tfrecord", integers, columns, from_integers)
    other = _pass(Path(folder) / "float32.tfrecord", floats, normalised, from_floats)
    return in_turns(ours, other, repetitions)._asdict() | {"bytes": [integers.frame_length, floats.frame_length]}


def write_chunks(path: Path, layout: RecordLayout, columns: dict[str, np.ndarray]) -> None:
    """Writes a shard through one buffer of frames that stays in the processor's cache."""
    examples, step = len(columns["label"]), CHUNK_BYTES // layout.frame_length
    frames = layout.frames(step)
    with path.open("wb") as stream:
        for start in range(0, examples, step):
            chunk = {name: values[start : start + step] for name, values in columns.items()}
            filled = frames[: len(chunk["label"])]
            layout.fill(filled, chunk)
            seal(filled)
            stream.write(filled.data)


def _pass(path: Path, layout: RecordLayout, columns: dict[str, np.ndarray], finish: Finish) -> Callable[[], None]:
    """Writes a shard, and returns what reads it once in shuffled batches; its pages are in memory by then."""
    examples = len(columns["label"])
    write_chunks(path, layout, columns)
    batches = np.random.default_rng(1).permutation(examples)[: examples // BATCH_SIZE * BATCH_SIZE]

    def run() -> None:
        frames = np.memmap(path, np.uint8, "r").reshape(examples, -1)
        for chosen in batches.reshape(-1, BATCH_SIZE):
            finish(layout, frames[chosen])

    run()
    return run
