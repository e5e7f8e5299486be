"""Writes a shard by its plan: fills a chunk of frames, writes and hashes it; memory holds one chunk at a time."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Arrays
from podline.base.frozen import Frozen
from podline.data import jpeg_files
from podline.data.decoded_rows import DecodedRows
from podline.data.pixels import PixelSums, add_up, pixel_sums
from podline.data.planning import ShardPlan
from podline.data.records import IMAGE, EncodedLayout, RecordLayout
from podline.data.tfrecord import Bytes
from podline.documents.manifest import MANY_CLASSES, FileInfo, shard_record
from podline.documents.shard_table import MANY_COUNTS, ShardInfo, index_file
from podline.store.contract import Store, explained

# Bytes of a chunk: large enough to hide the cost of a call, small enough for the cache that cores share.
CHUNK_BYTES = 2_000_000
# NumPy parses an array's header as Python code, which only one thread may do at a time in Python 3.11 (CPython's issue
# 106905).
_ONE_LOADS = threading.Lock()
_ROWS = 1_000_000  # rows of a split's table that are written at once
_PLACE, _TARGETS = "place", "targets"  # the columns of a split's table

Fill = Callable[[Bytes, int], None]
"""A function ``fill(frames, start)`` that writes a shard's records from ``start`` on into frames."""
Files = Callable[[Bytes, int], Sequence[bytes]]
"""A function ``files(frames, start)`` that returns the image files of the same records, if records store files."""
Census = Callable[[Arrays], npt.NDArray[np.int64]]
"""A function that counts the records of each class, from all features but the image: int64 (classes,)."""


@dataclass(frozen=True)
class SourceSplit:
    """The convertible records of one split.

    Attributes:
        name: name of the split, such as ``train``.
        image_shape: (height, width, channels).
        pixels: the decoded images of all splits.
        targets: feature name → values by row of ``pixels``, (rows, …); class numbers have any unsigned dtype.
        numbers: number of each record's image in the table of images, (records,).
        kept: row of each record's image in ``pixels``, (records,).
    """

    name: str
    image_shape: tuple[int, int, int]
    pixels: DecodedRows
    targets: dict[str, npt.NDArray[Any]]
    numbers: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of records to convert."""
        return len(self.kept)

    def some(self, records: npt.NDArray[np.int64]) -> Self:
        """Return the split with only the records at some positions, in the given order."""
        return replace(self, numbers=self.numbers[records], kept=self.kept[records])

    def pixels_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return decoded images by row, (n, height, width, channels)."""
        return RowsByPlace(self.pixels, self.image_shape).images(rows)

    def read(self, records: npt.NDArray[np.int64]) -> dict[str, np.ndarray]:
        """Return the records at some positions, in the given order.

        Returns:
            ``image``: uint8, (n, height, width, channels); every other feature: (n, …).

        Raises:
            SourceError: the images cannot be read, or are damaged.
        """
        rows = self.kept[records]
        return {IMAGE: self.pixels_of(rows), **{name: column[rows] for name, column in self.targets.items()}}


@dataclass(frozen=True)
class RowsByPlace:
    """Fills the records of a shard from decoded images; it is pickled and sent to workers, which read the images.

    Attributes:
        pixels: the images of all splits.
        shape: (height, width, channels) of each image.
    """

    pixels: DecodedRows
    shape: tuple[int, int, int]

    def table(self, plan: ShardPlan) -> str:
        """Return the file name of the table for :meth:`filler`, which has row and targets of a split's records."""
        return f"{plan.split}.npy"

    def filler(self, plan: ShardPlan, /, layout: RecordLayout, table: Path) -> Fill:
        """Return the function that fills a shard's records; an unreadable table raises a StoreError."""
        with explained("read", table), _ONE_LOADS:
            rows = np.load(table, mmap_mode="r")[plan.first : plan.first + plan.records]

        def fill(frames: Bytes, start: int) -> None:
            chosen = rows[start : start + len(frames)]
            targets = {name: chosen[_TARGETS][name] for name in chosen.dtype[_TARGETS].names or ()}
            layout.fill(frames, {IMAGE: self.images(chosen[_PLACE]), **targets})

        return fill

    def images(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the images in some rows, (n, height, width, channels)."""
        return self.pixels.read(rows, math.prod(self.shape)).reshape(-1, *self.shape)


class WrittenShard(Frozen):
    """A written shard: its manifest entry, and the sums of its pixels."""

    split: str
    info: ShardInfo
    pixels: PixelSums

    def in_manifest(self, shards: int) -> ShardInfo:
        """Return the manifest entry; without counts per class if classes, or classes × ``shards``, are very many."""
        classes = len(self.info.class_counts)
        few = classes <= MANY_CLASSES and classes * shards <= MANY_COUNTS
        return self.info if few else self.info.model_copy(update={"class_counts": ()})


def tables_of_places(splits: Iterable[SourceSplit], folder: Path) -> Iterator[Path]:
    """Write each split's table for :class:`RowsByPlace`: 8 bytes and the targets of each record; yield the path.

    Raises:
        StoreError: the folder cannot be written.
    """
    for split in splits:
        path = folder / f"{split.name}.npy"
        with explained("write", path), path.open("wb") as stream:
            dtype = np.lib.format.dtype_to_descr(_places(split, np.arange(0)).dtype)
            head = {"descr": dtype, "fortran_order": False, "shape": (len(split),)}
            np.lib.format.write_array_header_1_0(stream, head)
            for first in range(0, len(split), _ROWS):
                _places(split, np.arange(first, min(first + _ROWS, len(split)))).tofile(stream)
        yield path


def _places(split: SourceSplit, records: np.ndarray) -> np.ndarray:
    """Return the rows of some records among all decoded images, and their targets."""
    places = split.kept[records]
    targets = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in split.targets.items()])
    table = np.empty(len(places), np.dtype([(_PLACE, np.int64), (_TARGETS, targets)]))
    table[_PLACE] = places
    for name, values in split.targets.items():
        table[_TARGETS][name] = values[places]
    return table


def write_shard(
    path: Path,
    plan: ShardPlan,
    layout: RecordLayout | EncodedLayout,
    census: Census,
    fill: Fill,
    files: Files | None = None,
) -> WrittenShard:
    """Write a shard's file, and its index if records store image files.

    Args:
        path: path of the file; it may be incomplete if writing is interrupted.
        plan: the plan of the shard.
        layout: the layout of the records in the file.
        census: counts the records of each class.
        fill: writes the values of records into frames.
        files: returns existing image files, if records store files; by default the images are encoded.

    Raises:
        StoreError: the file cannot be written.
        SourceError: a decoded image cannot be read, or a class number does not fit into its field.
    """
    decoded = layout.decoded
    names = [field.name for field in decoded.fields if field.name != IMAGE]
    step = max(1, CHUNK_BYTES // decoded.frame_length)
    digest, counts, pixels, lengths = hashlib.sha256(), [], [], []
    with explained("write", path), path.open("wb") as stream:
        for start in range(0, plan.records, step):
            frames = decoded.frames(min(step, plan.records - start))
            fill(frames, start)
            stored = (files or partial(_as_jpeg, decoded))(frames, start) if decoded is not layout else ()
            counts.append(census({name: decoded.values(frames, name) for name in names}))
            pixels.append(pixel_sums(decoded.values(frames, IMAGE)))
            for piece in layout.records(frames, stored):
                stream.write(piece)
                digest.update(piece)
                lengths.append(len(piece))
        size = stream.tell()
        index = _write_index(path, lengths) if isinstance(layout, EncodedLayout) else None
    info = ShardInfo(
        file=plan.file,
        records=plan.records,
        bytes=size,
        sha256=digest.hexdigest(),
        class_counts=tuple(np.sum(counts, axis=0).tolist()),
        index=index,
    )
    return WrittenShard(split=plan.split, info=info, pixels=add_up(pixels))


def publish_shard(
    store: Store,
    folder: str,
    plan: ShardPlan,
    layout: RecordLayout | EncodedLayout,
    census: Census,
    fill: Fill,
    files: Files | None = None,
) -> WrittenShard:
    """Write a shard, and publish its files and then its record in a data set's folder; see :func:`write_shard`."""
    with store.workspace("shard") as workspace:
        written = write_shard(workspace / plan.file, plan, layout, census, fill, files)
        # All shards are flushed together before the manifest is published; one by one this took 20 % of the time.
        for file in written.info.files:
            store.publish_file(workspace / file.file, f"{folder}/{file.file}", replace=True, flush=False)
    record = f"{folder}/{shard_record(plan.file)}"
    store.publish_json(record, written.model_dump(mode="json"), replace=True, flush=False)
    return written


def _as_jpeg(layout: RecordLayout, frames: Bytes, _start: int) -> list[bytes]:
    """Encode the images in frames as JPEG files, and replace the images by the pixels that a reader decodes."""
    images = layout.values(frames, IMAGE)
    files = [jpeg_files.encoded(image) for image in images]
    layout.fill(frames, {IMAGE: np.stack([jpeg_files.decoded(file, images.shape[1:]) for file in files])})
    return files


def _write_index(shard: Path, lengths: Sequence[int]) -> FileInfo:
    """Write a shard's index: the first byte of each record, then the end of the last record, int64 (records + 1,)."""
    path = shard.with_name(index_file(shard.name))
    np.save(path, np.cumsum([0, *lengths], dtype="<i8"))
    data = path.read_bytes()
    return FileInfo(file=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
