"""Writes a shard in a child process, as the conversion does and as the TFRecord tutorial does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import plain
from benchmarks.timing import in_turns, seconds_of
from podline.data.records import RecordLayout, layout_of
from podline.data.shards import CHUNK_BYTES
from podline.data.tfrecord import seal
from podline.documents.feature import Feature

IMAGE_SHAPE = (32, 32, 3)
CLASSES = 10


def random_columns(examples: int) -> dict[str, np.ndarray]:
    """Return noise in CIFAR-10's shape: ``image`` uint8 (examples, 32, 32, 3), ``label`` int64 (examples,)."""
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (examples, *IMAGE_SHAPE), np.uint8),
        "label": random.integers(0, CLASSES, examples, np.int64),
    }


def cifar_layout() -> RecordLayout:
    """Return the layout of CIFAR-10's records."""
    return layout_of([Feature("image", "uint8", IMAGE_SHAPE), Feature("label", "int64", ())])


def write_shard(folder: str, examples: int, repetitions: int) -> dict[str, list[float]]:
    """Return ``ours`` and ``other`` → the seconds to write a TFRecord file, for each repetition.

    ``ours`` writes chunks of frames, ``other`` uses ``tf.train.Example``. Both sides write the same records and nothing
    else. The order, checksums and statistics of a conversion are measured with the whole job.
    """
    columns, layout = random_columns(examples), cifar_layout()
    path = Path(folder) / "shard.tfrecord"

    def written(write: Callable[[], None]) -> float:
        path.unlink(missing_ok=True)
        return seconds_of(write)

    sides = {
        "ours": lambda: written(lambda: write_chunks(path, layout, columns)),
        "other": lambda: written(lambda: plain.write_shard(path, columns["image"], columns["label"])),
    }
    return in_turns(sides, repetitions)


def write_chunks(path: Path, layout: RecordLayout, columns: dict[str, np.ndarray]) -> None:
    """Write a shard through one small buffer of frames, which stays in the processor's cache."""
    examples, step = len(columns["label"]), CHUNK_BYTES // layout.frame_length
    frames = layout.frames(step)
    with path.open("wb") as stream:
        for start in range(0, examples, step):
            chunk = {name: values[start : start + step] for name, values in columns.items()}
            filled = frames[: len(chunk["label"])]
            layout.fill(filled, chunk)
            seal(filled)
            stream.write(filled.data)
