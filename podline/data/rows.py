"""Reads raw pixels by position, as rows of files and as splits of them; decoded pixels in the cache have this form.

The objects are small and picklable (paths, offsets, one byte per label). Workers open the same files themselves, by
position, so pixels are not sent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.rawfiles import RawFile, made_once, raw_file
from podline.errors import SourceError
from podline.store.contract import explained

_PIXELS, _RECORDS = "pixels", "records.npz"
_SCANNED_BYTES = 4_000_000


@dataclass(frozen=True)
class RowBlock:
    """Images in one file, at equal distances.

    Attributes:
        key: the raw file's short name in errors and quarantine: ``data_batch_1``.
        path: the file, in plain bytes.
        count: number of images.
        offset: first byte of the first image.
        stride: bytes from one image's start to the next one's; 0 if the images are adjacent.
        planes: number of channels that are stored as separate planes; 0 for (height, width, channels).
        modified: time of a user file's last modification, in nanoseconds; 0 for a file in the cache.
    """

    key: str
    path: str
    count: int
    offset: int = 0
    stride: int = 0
    planes: int = 0
    modified: int = 0

    def read(self, images: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
        """Return some images of ``size`` bytes as (height, width, channels), (n, size).

        One positioned read per image is cheaper than a new mapping, and leaves no mapped pages.

        Raises:
            SourceError: the file does not exist or was changed.
        """
        stored = np.empty((len(images), size), np.uint8)
        whole, read = stored.reshape(-1).data, 0
        places = (self.offset + images * (self.stride or size)).tolist()
        with self._open() as stream:
            number = stream.fileno()
            for start, place in zip(range(0, stored.size, size), places, strict=True):
                read += os.preadv(number, (whole[start : start + size],), place)
        self._check(read, stored.size)
        if not self.planes:
            return stored
        planes, every = stored.reshape(len(images), self.planes, -1), np.arange(len(images))
        pixels = np.empty((len(images), size // self.planes, self.planes), np.uint8)
        for channel in range(self.planes):  # with rows by index, three times as fast as a transposition
            pixels[every, :, channel] = planes[:, channel]
        return pixels.reshape(len(images), size)

    def scan(self, size: int) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield all images as stored, in the file's order, some megabytes at a time.

        Yields:
            uint8, (n, size), with contiguous rows; the next iteration overwrites it.

        Raises:
            SourceError: the file does not exist or was changed.
        """
        stride = self.stride or size
        step = max(1, min(self.count, _SCANNED_BYTES // stride))
        buffer = np.empty((step, stride), np.uint8)
        with self._open() as stream:
            for first in range(0, self.count, step):
                count = min(step, self.count - first)
                wanted = buffer.reshape(-1)[: count * stride - (stride - size)].data
                self._check(os.preadv(stream.fileno(), (wanted,), self.offset + first * stride), len(wanted))
                yield buffer[:count, :size]

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with Path(self.path).open("rb", buffering=0) as stream:
                if self.modified not in (0, os.fstat(stream.fileno()).st_mtime_ns):
                    raise SourceError(f"{self.path} was changed while it was converted; convert again")
                yield stream
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _check(self, read: int, expected: int) -> None:
        if read != expected:
            raise SourceError(f"{self.path} was cut short while it was converted; restore it and convert again")


@dataclass(frozen=True)
class SourceSplit:
    """The convertible records of one split, in the source's order.

    Attributes:
        name: ``train`` or ``test``.
        image_shape: (height, width, channels).
        blocks: the places of the images.
        targets: feature name → (images, …), over all blocks in order; classes are any unsigned integers.
        kept: positions, over all blocks, of the records outside the quarantine; None for all.
    """

    name: str
    image_shape: tuple[int, int, int]
    blocks: tuple[RowBlock, ...]
    targets: dict[str, npt.NDArray[Any]]
    kept: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Return the number of records to convert."""
        return sum(block.count for block in self.blocks) if self.kept is None else len(self.kept)

    def record_name(self, index: int) -> str:
        """Return the origin of record ``index``: ``data_batch_1[17]``."""
        place = int(index) if self.kept is None else int(self.kept[index])
        for block in self.blocks:
            if place < block.count:
                return f"{block.key}[{place}]"
            place -= block.count
        raise IndexError(f"record {index} of {len(self)}")

    def read(self, indices: npt.NDArray[np.int64]) -> dict[str, np.ndarray]:
        """Return the records at some positions, in the given order.

        Args:
            indices: int64, (n,).

        Returns:
            ``image``: uint8, (len(indices), height, width, channels); every other feature: (len(indices), …).

        Raises:
            SourceError: a raw file does not exist or has become shorter.
        """
        places = indices if self.kept is None else self.kept[indices]
        height, width, channels = self.image_shape
        stored = np.empty((len(places), height * width * channels), np.uint8)
        first = 0
        for block in self.blocks:
            chosen = np.flatnonzero((places >= first) & (places < first + block.count))
            if len(chosen):
                stored[chosen] = block.read(places[chosen] - first, stored.shape[1])
            first += block.count
        images = stored.reshape(-1, height, width, channels)
        return {"image": images, **{name: column[places] for name, column in self.targets.items()}}


class CachedImages(NamedTuple):
    """The images of one raw file in the cache.

    Attributes:
        block: the place of the images.
        labels: integers or texts, (images, kinds of labels).
        shape: (height, width, channels) of each.
    """

    block: RowBlock
    labels: npt.NDArray[Any]
    shape: tuple[int, ...]


def write_images(folder: Path, parts: Iterable[npt.NDArray[np.uint8]], labels: Any) -> None:
    """Write images into an empty folder for :func:`cached_images`; for untrusted files, a child process calls this.

    Args:
        folder: the empty folder.
        parts: arrays of images, (n, …) as stored, all of one shape; at least one part.
        labels: (images, kinds); read after all parts are written.

    Raises:
        StoreError: the folder cannot be written.
    """
    shape: tuple[int, ...] = ()
    with explained("write", folder / _PIXELS):
        with (folder / _PIXELS).open("wb") as stream:
            for part in parts:
                shape = part.shape[1:]
                stream.write(np.ascontiguousarray(part).reshape(-1).data)
        np.savez(folder / _RECORDS, labels=np.asarray(labels), shape=np.array(shape))


def cached_images(work: Path, key: str, name: str, write: Callable[[Path], object], planes: int = 0) -> CachedImages:
    """Return a raw file's images from the cache, where they are readable by position.

    Args:
        work: the cache folder.
        key: the checksum of everything that the images depend on.
        name: the raw file's short name, for errors and the quarantine.
        write: calls :func:`write_images`; used if the cache does not have the images.
        planes: see :class:`RowBlock`.

    Raises:
        StoreError: the cache folder cannot be written.
    """

    def make(folder: Path) -> list[RawFile]:
        write(folder)
        return [raw_file(file, folder / file) for file in (_PIXELS, _RECORDS)]

    pixels, records = made_once(work, key, make)
    with np.load(str(records.path)) as columns:
        labels, shape = columns["labels"], tuple(columns["shape"].tolist())
    return CachedImages(RowBlock(name, str(pixels.path), len(labels), planes=planes), labels, shape)
