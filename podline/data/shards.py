"""Writing shards: what one is made of, and how its file is written.

Chunks of frames go to the file and into its checksum while the next chunk is made, so memory is two chunks, whatever
the shard's size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from podline.data.manifest import ShardInfo
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, LABEL, RecordLayout
from podline.data.sources.source import Source, SourceSplit
from podline.data.tfrecord import Bytes
from podline.frozen import Frozen
from podline.storage import explained

# Of frames: large enough that a call's cost is lost in it, small enough for the cache that cores share.
CHUNK_BYTES = 4_000_000


@dataclass(frozen=True)
class ShardTask:
    """One shard to be written.

    Attributes:
        plan: which.
        images: its split's images, without labels.
        places: positions of its records among all images of the split, int64.
        labels: feature name → uint8, the labels of its records.
    """

    plan: ShardPlan
    images: SourceSplit
    places: npt.NDArray[np.int64]
    labels: dict[str, npt.NDArray[np.uint8]]

    def read(self, start: int, stop: int) -> Mapping[str, np.ndarray]:
        """The values of the shard's records start … stop-1."""
        labels = {name: values[start:stop].astype(np.int64) for name, values in self.labels.items()}
        return {**self.images.read(self.places[start:stop]), **labels}


class WrittenShard(Frozen):
    """A shard's facts: what the manifest says of it, and its part of its split's statistics."""

    split: str
    info: ShardInfo
    pixels: PixelSums


def shard_tasks(source: Source, plans: tuple[ShardPlan, ...], seed: int) -> Iterator[ShardTask]:
    """Each plan with the places and labels of its records."""
    splits = {split.name: split for split in source.splits}
    orders = {name: shard_order(seed, name, len(split)) for name, split in splits.items()}
    for plan in plans:
        split = splits[plan.split]
        chosen = orders[plan.split][plan.first : plan.first + plan.records]
        places = chosen if split.kept is None else split.kept[chosen]
        labels = {name: values[places] for name, values in split.labels.items()}
        yield ShardTask(plan, dataclasses.replace(split, labels={}, kept=None), places, labels)


def write_shard(
    path: Path,
    plan: ShardPlan,
    layout: RecordLayout,
    classes: int,
    read: Callable[[int, int], Mapping[str, np.ndarray]],
) -> WrittenShard:
    """Writes a shard's file.

    Args:
        path: where to; it must not matter if this ends in the middle.
        plan: what the shard is.
        layout: of its records.
        classes: how many classes the main label has.
        read: ``read(start, stop)`` gives the values of the shard's records start … stop-1, feature by feature.

    Raises:
        StoreError: the file cannot be written.
        SourceError: a raw file cannot be read.
    """
    step = min(plan.records, max(1, CHUNK_BYTES // layout.frame_length))
    buffers = itertools.cycle([layout.frames(step), layout.frames(step)])
    counts, pixels = np.zeros(classes, np.int64), []
    digest, pending = hashlib.sha256(), None
    with explained("write", path), path.open("wb") as stream, ThreadPoolExecutor(1) as background:
        for start in range(0, plan.records, step):
            stop = min(start + step, plan.records)
            columns, frames = read(start, stop), next(buffers)[: stop - start]
            layout.fill(frames, columns)
            _wait(pending)  # for the chunk before: its buffer is filled next
            pending = background.submit(_append, frames, stream, digest)
            pixels.append(pixel_sums(layout.values(frames, IMAGE)))
            counts += np.bincount(columns[LABEL], minlength=classes)
        _wait(pending)
    info = ShardInfo(
        file=plan.file,
        records=plan.records,
        bytes=plan.records * layout.frame_length,
        sha256=digest.hexdigest(),
        class_counts=tuple(counts.tolist()),
    )
    return WrittenShard(split=plan.split, info=info, pixels=add_up(pixels))


def _append(frames: Bytes, stream: BinaryIO, digest: hashlib._Hash) -> None:
    stream.write(frames.data)
    digest.update(frames.data)


def _wait(pending: Future[None] | None) -> None:
    if pending is not None:
        pending.result()
