"""Stores decoded images by row, each followed by its CRC-32C: in a cache file, or in batches in a store."""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.data.rawfiles import reading
from podline.errors import SourceError, StoreError
from podline.store.opening import open_store
from podline.store.prefetch import in_order

PIXELS = "pixels"
"""The name of the file with decoded images in its folder."""
FILES, HASHES = "files", "hashes"
"""Kinds of files in a store: image files, one after another, and perceptual hashes."""

_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class DecodedRows:
    """Decoded images in consecutive files.

    Attributes:
        paths: the files.
        edges: the row of each file's first image, and the number of rows.
    """

    paths: tuple[str, ...]
    edges: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of images."""
        return self.edges[-1]

    def read(self, images: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
        """Read and verify some images of ``size`` bytes, (n, size).

        Raises:
            SourceError: the file does not exist or is damaged.
        """
        stored = np.empty((len(images), size), np.uint8)
        for row, found in zip(stored, self.stored(images, size + _CRC.size), strict=True):
            pixels = np.frombuffer(found, np.uint8)[:size]
            if len(found) != size + _CRC.size or _CRC.pack(google_crc32c.value(pixels)) != found[size:]:
                folder = Path(self.paths[-1]).parent
                raise SourceError(f"{folder}: decoded images are damaged; delete this folder and convert again")
            row[:] = pixels
        return stored

    def each(self, kind: str) -> Iterator[bytes]:
        """Yield the files of one kind for all images, in order.

        Raises:
            SourceError: a file cannot be read.
        """
        folder = Path(self.paths[-1]).parent
        for path in (*older_files(folder, kind), folder / kind):
            with reading(path):
                yield path.read_bytes()

    def stored(self, images: npt.NDArray[np.int64], length: int) -> Iterator[bytes]:
        """Yield some images of ``length`` bytes as stored, with their checksums.

        Raises:
            SourceError: the file cannot be read.
        """
        which, places = self._places(images)
        with contextlib.ExitStack() as opened:
            files = dict[int, int]()
            for at in np.unique(which).tolist():
                opened.enter_context(reading(self.paths[at]))
                files[at] = opened.enter_context(Path(self.paths[at]).open("rb", buffering=0)).fileno()
            for at, place in zip(which.tolist(), places.tolist(), strict=True):
                yield os.pread(files[at], length, place * length)

    def _places(self, images: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the number of each image's file, and the image's row in the file."""
        which = np.searchsorted(self.edges, images, "right") - 1
        return which, images - np.array(self.edges)[which]


def rows_of(folder: Path, shape: Sequence[int]) -> DecodedRows:
    """Return the decoded images of a folder, after the rows that it links from older folders."""
    return joined([*older_files(folder, PIXELS), folder / PIXELS], shape)


def joined(paths: Sequence[Path], shape: Sequence[int]) -> DecodedRows:
    """Return the decoded images, of one shape, in consecutive files."""
    length = row_bytes(shape)
    counts = [path.stat().st_size // length if path.exists() else 0 for path in paths]
    return DecodedRows(tuple(map(str, paths)), (0, *np.cumsum(counts).tolist()))


def older_files(folder: Path, kind: str) -> list[Path]:
    """Return a folder's files of a kind that come from older folders, in the order of their rows."""
    return sorted(folder.glob(f"[0-9]*.{kind}"))


def row_bytes(shape: Sequence[int]) -> int:
    """Return the bytes that an image and its checksum take in the file."""
    return math.prod(shape) + _CRC.size


def with_checksums(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return images, (n, …) and C-contiguous, as rows that end in their checksums, (n, row bytes)."""
    pixels = images.reshape(len(images), -1)
    crcs = np.fromiter(map(google_crc32c.value, pixels), "<u4", len(pixels))
    return np.concatenate([pixels, crcs[:, np.newaxis].view(np.uint8)], axis=1)


def write_row(path: str, row: int, pixels: npt.NDArray[Any]) -> None:
    """Write a decoded image into an existing file.

    Args:
        path: path of the file.
        row: row of the image.
        pixels: uint8, C-contiguous.

    Raises:
        StoreError: the file cannot be written.
    """
    content = pixels.reshape(-1)
    left = memoryview(b"".join((content.data, _CRC.pack(google_crc32c.value(content)))))
    start = row * len(left)
    try:
        file = os.open(path, os.O_WRONLY)
        try:
            while left:  # a full disk writes a part, without an error
                count = os.pwrite(file, left, start)
                left, start = left[count:], start + count
        finally:
            os.close(file)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


@dataclass(frozen=True)
class StoredRows(DecodedRows):
    """Decoded images in batches in a store; the one path is their folder's name.

    Attributes:
        root: the store.
    """

    root: str = ""

    def each(self, kind: str) -> Iterator[bytes]:
        """Yield the files of one kind for all batches, in order.

        Raises:
            StoreError: a file cannot be read.
        """
        store = open_store(self.root)
        names = (batch_name(self.paths[0], number, kind) for number in range(len(self.edges) - 1))
        return in_order(store.read_bytes, names, store.parallel)

    def stored(self, images: npt.NDArray[np.int64], length: int) -> Iterator[bytes]:
        """See :meth:`DecodedRows.stored`."""
        store, (which, places) = open_store(self.root), self._places(images)

        def read(one: tuple[int, int]) -> bytes:
            return store.read_range(batch_name(self.paths[0], one[0], PIXELS), one[1] * length, length)

        return in_order(read, zip(which.tolist(), places.tolist(), strict=True), store.parallel)


def batch_name(folder: str, number: int, kind: str) -> str:
    """Return the name, in a store, of a batch's file of one kind: ``pixels``, image files or others."""
    return f"{folder}/{number:07}.{kind}"
