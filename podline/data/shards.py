"""Writes a shard from a plan.

Chunks of frames go to the file and into its checksum while the next ones are made, by as many threads as there are to
be. They come in their order, and there are only so many of them at a time: the bytes are the same for any number of
threads, and memory is the same for any size of a shard. The next shard is begun as soon as the chunks that are left of
one cannot keep all threads busy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from podline.data.holes import write_with_holes
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.planning import ShardPlan, shard_order
from podline.data.records import IMAGE, LABEL, RecordLayout
from podline.data.sources.rows import RawRows, SourceSplit
from podline.data.tfrecord import Bytes
from podline.documents.manifest import MANY_CLASSES, ShardInfo
from podline.frozen import Frozen
from podline.store.contract import explained
from podline.store.page_cache import Passing

# Of frames: large enough that a call's cost is lost in it, small enough for the cache that cores share.
CHUNK_BYTES = 2_000_000
_SHARING = 8  # threads with a chunk of full size each
# NumPy parses an array's header as Python, which only one thread at a time may do in Python 3.11 (CPython's issue
# 106905).
_ONE_LOADS = threading.Lock()
_PLACE, _LABELS = "place", "labels"  # the columns of a split's table

Read = Callable[[int, int], Mapping[str, np.ndarray]]
"""``read(start, stop)``: the values of a shard's records start … stop-1, feature by feature."""

Pieces = Sequence[bytes | memoryview]

Fill = Callable[[Bytes, int], Pieces]
"""``fill(frames, start)``: writes a shard's records from ``start`` on into frames, as many as these are.

It returns what they are in the file, in pieces."""


class Task(Protocol):
    """One shard to be written, as it travels to a worker: a few hundred bytes.

    Attributes:
        plan: which.
        threads: that make records; the same in all tasks of a conversion.
    """

    @property
    def plan(self) -> ShardPlan: ...  # noqa: D102
    @property
    def threads(self) -> int: ...  # noqa: D102

    def filler(self, layout: RecordLayout) -> Fill:
        """What fills the shard's records, for :func:`write_shard`; any number of threads may call it.

        Raises:
            StoreError: what the task names cannot be read.
        """
        ...


@dataclass(frozen=True)
class ShardTask:
    """One shard to be written: a few hundred bytes, whatever the shard's size.

    Attributes:
        plan: which.
        images: its split's images, without labels.
        table: a file, made by :func:`shard_tasks`, of where each of the split's records is and of its labels.
        threads: that make records; raw pixels are read as fast as one can write them.
    """

    plan: ShardPlan
    images: SourceSplit
    table: str
    threads: int = 1

    def filler(self, layout: RecordLayout) -> Fill:
        """What fills the shard's records, for :func:`write_shard`, in one thread.

        Raises:
            StoreError: the table cannot be read.
        """
        return filled_from(layout, self.reader())

    def reader(self) -> Read:
        """What reads the shard's records.

        Each call may overwrite what the one before returned. It raises a SourceError if a raw file cannot be read.

        Raises:
            StoreError: the table cannot be read.
        """
        with explained("read", self.table), _ONE_LOADS:
            rows = np.load(self.table, mmap_mode="r")[self.plan.first : self.plan.first + self.plan.records]
        # What is in a bucket comes all at once, since a request for each chunk would fetch the same blocks again.
        everything = self.images.read(rows[_PLACE])["image"] if self.images.remote else None
        scratch = np.empty((0, math.prod(self.images.image_shape)), np.uint8)

        def read(start: int, stop: int) -> Mapping[str, np.ndarray]:
            nonlocal scratch
            chosen, count = rows[start:stop], stop - start
            labels = {name: chosen[_LABELS][name].astype(np.int64) for name in rows.dtype[_LABELS].names or ()}
            if everything is not None:
                return {"image": everything[start:stop], **labels}
            if len(scratch) < count:
                scratch = np.empty((count, scratch.shape[1]), np.uint8)
            return {**self.images.read(chosen[_PLACE], scratch[:count]), **labels}

        return read


class WrittenShard(Frozen):
    """A shard's facts: what the manifest says of it, and its part of its split's statistics."""

    split: str
    info: ShardInfo
    pixels: PixelSums

    @property
    def in_manifest(self) -> ShardInfo:
        """What the manifest says of it; see :class:`podline.documents.manifest.ShardInfo`."""
        few = len(self.info.class_counts) <= MANY_CLASSES
        return self.info if few else self.info.model_copy(update={"class_counts": ()})


def shard_tasks(source: RawRows, plans: Iterable[ShardPlan], seed: int, folder: Path) -> list[ShardTask]:
    """Each plan with where its records are.

    Args:
        source: what is converted.
        plans: its shards.
        seed: of the order in which records are put into shards.
        folder: an existing folder that every worker can read, for one table a split: 9 to 12 bytes a record.

    Raises:
        StoreError: the folder cannot be written.
    """
    tables = {split.name: folder / f"{split.name}.npy" for split in source.splits}
    for split in source.splits:
        with explained("write", tables[split.name]):
            np.save(tables[split.name], _table(split, seed))
    images = {split.name: dataclasses.replace(split, labels={}, kept=None) for split in source.splits}
    return [ShardTask(plan, images[plan.split], str(tables[plan.split])) for plan in plans]


def _table(split: SourceSplit, seed: int) -> np.ndarray:
    """Each record's position among all images of its split, and its labels, in the order of the shards."""
    order = shard_order(seed, split.name, len(split))
    places = order if split.kept is None else split.kept[order]
    labels = np.dtype([(name, values.dtype) for name, values in split.labels.items()])
    table = np.empty(len(places), np.dtype([(_PLACE, np.int64), (_LABELS, labels)]))
    table[_PLACE] = places
    for name, values in split.labels.items():
        table[_LABELS][name] = values[places]
    return table


def filled_from(layout: RecordLayout, read: Read) -> Fill:
    """Frames filled with the values that ``read`` gives, and written as they are."""

    def fill(frames: Bytes, start: int) -> Pieces:
        layout.fill(frames, read(start, start + len(frames)))
        return [frames.data]

    return fill


class Workbench:
    """What shards that are written one after another share.

    With it, the next shard is begun while the last chunks of the one before are made and written.

    Attributes:
        threads: that make records.
        filling: these threads.
        background: threads that write, and take checksums.
        turn: held by a shard for as long as it keeps all of its threads busy; the next one waits for it.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.filling = ThreadPoolExecutor(threads)
        self.background = ThreadPoolExecutor(4)  # two for a shard
        self.turn = threading.Lock()
        self._spare: deque[Bytes] = deque()

    def close(self) -> None:
        """Ends the threads, once they have nothing to do."""
        self.filling.shutdown()
        self.background.shutdown()

    def take(self, layout: RecordLayout, count: int) -> Bytes:
        """Frames to fill: those that are done with, before there are new ones."""
        try:
            return self._spare.pop()
        except IndexError:
            return layout.frames(count)

    def give_back(self, frames: Bytes | None) -> None:
        """Frames that were written."""
        if frames is not None:
            self._spare.append(frames)


def write_shard(
    path: Path, plan: ShardPlan, layout: RecordLayout, classes: int, fill: Fill, bench: Workbench, *, stays: bool = True
) -> WrittenShard:
    """Writes a shard's file.

    Args:
        path: where to; it must not matter if this ends in the middle.
        plan: what the shard is.
        layout: of its records.
        classes: how many classes the main label has.
        fill: makes the records; called by several threads at once, if the workbench has them.
        bench: shared with the shards before and after, which have the same layout; two threads may write shards by it.
        stays: whether the file may stay in the page cache.

    Raises:
        StoreError: the file cannot be written.
        SourceError: a raw file cannot be read.
    """
    counts, digest, size = np.zeros(classes, np.int64), hashlib.sha256(), 0
    before: Bytes | None = None
    pixels: list[PixelSums] = []
    pending: list[Future[None]] = []
    with (
        explained("write", path),
        path.open("wb") as stream,
        Passing(stream, stays=stays) as passing,
        closing(_chunks(plan.records, layout, fill, bench)) as chunks,
    ):
        try:
            for chunk in chunks:
                counts += np.bincount(layout.values(chunk.frames, LABEL), minlength=classes)
                pixels.append(chunk.sums)
                _wait(pending)
                bench.give_back(before)
                before = chunk.whole
                pending = [
                    bench.background.submit(_each, use, chunk.pieces)
                    for use in (partial(write_with_holes, stream), digest.update)
                ]
                length = sum(memoryview(piece).nbytes for piece in chunk.pieces)
                size += length
                passing.add(length)
            _wait(pending)
        finally:
            wait(pending)  # nobody is to write to a file that is closed
        bench.give_back(before)
        stream.truncate()
    info = ShardInfo(
        file=plan.file,
        records=plan.records,
        bytes=size,
        sha256=digest.hexdigest(),
        class_counts=tuple(counts.tolist()),
    )
    return WrittenShard(split=plan.split, info=info, pixels=add_up(pixels))


class _Chunk(NamedTuple):
    """Some of a shard's records.

    Attributes:
        whole: the frames that were taken for them.
        frames: those of them that are filled.
        pieces: what they are in the file.
        sums: of their pixels.
    """

    whole: Bytes
    frames: Bytes
    pieces: Pieces
    sums: PixelSums


def _chunks(records: int, layout: RecordLayout, fill: Fill, bench: Workbench) -> Generator[_Chunk]:
    """A shard's records, some at a time and in their order.

    The threads work ahead by twice as many chunks as they are. Two more are the caller's: the one that it was given
    last, and the one before.
    """
    threads = bench.threads
    # What a chunk costs besides its records, the interpreter's lock, is every thread's; so several threads have larger
    # chunks. Many share one, so that what is on its way does not grow with them.
    size = 2 * CHUNK_BYTES // max(1, threads // _SHARING) if threads > 1 else CHUNK_BYTES
    step = max(1, size // layout.frame_length)
    ahead: deque[Future[_Chunk]] = deque()

    def made(whole: Bytes, start: int) -> _Chunk:
        frames = whole[: records - start]
        pieces = fill(frames, start)
        return _Chunk(whole, frames, pieces, pixel_sums(layout.values(frames, IMAGE)))

    try:
        with bench.turn:
            for start in range(0, records, step):
                if len(ahead) == 2 * threads:
                    yield ahead.popleft().result()
                ahead.append(bench.filling.submit(made, bench.take(layout, step), start))
            while len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for chunk in ahead:  # there are some only if something failed
            chunk.cancel()
        wait(ahead)


def _each(use: Callable[[Any], Any], pieces: Pieces) -> None:
    for piece in pieces:
        use(piece)


def _wait(pending: Iterable[Future[Any]]) -> None:
    for future in pending:
        future.result()
