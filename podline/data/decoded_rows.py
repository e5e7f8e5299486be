"""Stores decoded images by row, each followed by its CRC-32C: in a cache file, or in batches in a store."""

from __future__ import annotations

import errno
import math
import os
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError, StoreError
from podline.data.rawfiles import reading
from podline.store.opening import open_store
from podline.store.prefetch import in_order

PIXELS = "pixels"
"""The name of the file with decoded images in its folder."""
FILES = "files"
"""The kind of a batch's file in a store with image files, one after another."""

Bytes = npt.NDArray[np.uint8]

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
        pixels, checksums = np.zeros((len(images), size), np.uint8), np.zeros((len(images), _CRC.size), np.uint8)
        self._load(images, pixels, checksums)
        if not (_checksums(pixels) == checksums).all():
            folder = Path(self.paths[-1]).parent
            raise SourceError(f"{folder}: decoded images are damaged; delete this folder and convert again")
        return pixels

    def _load(self, images: npt.NDArray[np.int64], pixels: Bytes, checksums: Bytes) -> None:
        """Read some rows into arrays, without a check."""
        which, places = self._places(images)
        for at in np.unique(which).tolist():
            with reading(self.paths[at]), Path(self.paths[at]).open("rb", buffering=0) as file:
                for number in np.flatnonzero(which == at).tolist():
                    into, length = (pixels[number].data, checksums[number].data), pixels.shape[1] + _CRC.size
                    os.preadv(file.fileno(), into, int(places[number]) * length)

    def _places(self, images: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the number of each image's file, and the image's row in the file."""
        which = np.searchsorted(self.edges, images, "right") - 1
        return which, images - np.array(self.edges)[which]


def joined(paths: Sequence[Path], shape: Sequence[int]) -> DecodedRows:
    """Return the decoded images, of one shape, in consecutive files."""
    length = row_bytes(shape)
    counts = [path.stat().st_size // length if path.exists() else 0 for path in paths]
    return DecodedRows(tuple(map(str, paths)), (0, *np.cumsum(counts).tolist()))


def row_bytes(shape: Sequence[int]) -> int:
    """Return the bytes that an image and its checksum take in the file."""
    return math.prod(shape) + _CRC.size


def with_checksums(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return images, (n, …) and C-contiguous, as rows that end in their checksums, (n, row bytes)."""
    pixels = images.reshape(len(images), -1)
    return np.concatenate([pixels, _checksums(pixels)], axis=1)


def are_whole(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which rows, (n, row bytes), agree with their checksums."""
    return (_checksums(rows[:, : -_CRC.size]) == rows[:, -_CRC.size :]).all(axis=1)


def _checksums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.fromiter(map(google_crc32c.value, rows), "<u4", len(rows))[:, np.newaxis].view(np.uint8)


def write_row(path: str, row: int, pixels: npt.NDArray[Any]) -> None:
    """Write a decoded image into an existing file.

    Args:
        path: path of the file.
        row: row of the image.
        pixels: uint8, C-contiguous.

    Raises:
        StoreError: the file cannot be written.
    """
    row_of_bytes = (pixels.data, _CRC.pack(google_crc32c.value(pixels.reshape(-1))))
    length = pixels.nbytes + _CRC.size
    try:
        file = os.open(path, os.O_WRONLY)
        try:
            if os.pwritev(file, row_of_bytes, row * length) < length:  # a full disk writes a part, without an error
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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

    def _load(self, images: npt.NDArray[np.int64], pixels: Bytes, checksums: Bytes) -> None:
        store, (which, places) = open_store(self.root), self._places(images)
        size, length = pixels.shape[1], pixels.shape[1] + _CRC.size

        def load(one: tuple[int, int, int]) -> None:
            number, at, place = one
            data = store.read_range(batch_name(self.paths[0], at, PIXELS), place * length, length)
            if len(data) == length:
                pixels[number], checksums[number] = np.split(np.frombuffer(data, np.uint8), [size])

        deque(in_order(load, zip(range(len(images)), which.tolist(), places.tolist(), strict=True), store.parallel), 0)


def batch_name(folder: str, number: int, kind: str) -> str:
    """Return the name, in a store, of a batch's file of one kind: ``pixels``, image files or others."""
    return f"{folder}/{number:07}.{kind}"
