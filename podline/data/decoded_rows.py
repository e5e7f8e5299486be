"""Stores decoded images of one shape as rows (pixels, then CRC-32C): in a cache file, or in batches in a store."""

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
"""The name of a cache file with decoded images, and the file extension of a batch with decoded images in a store."""
FILES = "files"
"""The file extension of a batch of image files in a store, one file after another."""

Bytes = npt.NDArray[np.uint8]

_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class DecodedRows:
    """Decoded images in consecutive files.

    Attributes:
        paths: the files.
        edges: the row number of each file's first image, then the number of rows of all files.
    """

    paths: tuple[str, ...]
    edges: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of images."""
        return self.edges[-1]

    def read(self, images: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
        """Read images of ``size`` bytes by row number, and verify their checksums: uint8 (n, size).

        Raises:
            SourceError: a file does not exist or is damaged.
            StoreError: a store, in which the files are, cannot be read.
        """
        pixels, checksums = np.zeros((len(images), size), np.uint8), np.zeros((len(images), _CRC.size), np.uint8)
        self._load(images, pixels, checksums)
        if not (_checksums(pixels) == checksums).all():
            raise SourceError(f"{self._folder}: decoded images are damaged; delete this folder and convert again")
        return pixels

    @property
    def _folder(self) -> str:
        """The address of the folder with the files, for errors."""
        return str(Path(self.paths[-1]).parent)

    def _load(self, images: npt.NDArray[np.int64], pixels: Bytes, checksums: Bytes) -> None:
        """Read images and stored checksums into ``pixels`` and ``checksums``, without comparing these."""
        which, places = self._places(images)
        for at in np.unique(which).tolist():
            with reading(self.paths[at]), Path(self.paths[at]).open("rb", buffering=0) as file:
                for number in np.flatnonzero(which == at).tolist():
                    into, length = (pixels[number].data, checksums[number].data), pixels.shape[1] + _CRC.size
                    os.preadv(file.fileno(), into, int(places[number]) * length)

    def _places(self, images: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return two arrays (n,): the index of each image's file, and the image's row in this file."""
        which = np.searchsorted(self.edges, images, "right") - 1
        return which, images - np.array(self.edges)[which]


def joined(paths: Sequence[Path], shape: Sequence[int]) -> DecodedRows:
    """Describe the decoded images of ``shape`` in consecutive files as one sequence; a missing file has no images."""
    length = row_bytes(shape)
    counts = [path.stat().st_size // length if path.exists() else 0 for path in paths]
    return DecodedRows(tuple(map(str, paths)), (0, *np.cumsum(counts).tolist()))


def row_bytes(shape: Sequence[int]) -> int:
    """Return the number of bytes of a row: an image of ``shape`` and its checksum."""
    return math.prod(shape) + _CRC.size


def with_checksums(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Append a checksum to each image: C-contiguous uint8 (n, …) to uint8 (n, row bytes)."""
    pixels = images.reshape(len(images), -1)
    return np.concatenate([pixels, _checksums(pixels)], axis=1)


def are_whole(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which rows, uint8 (n, row bytes), match their checksums: bool (n,)."""
    return (_checksums(rows[:, : -_CRC.size]) == rows[:, -_CRC.size :]).all(axis=1)


def _checksums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.fromiter(map(google_crc32c.value, rows), "<u4", len(rows))[:, np.newaxis].view(np.uint8)


def write_row(path: str, row: int, pixels: npt.NDArray[Any]) -> None:
    """Write a decoded image (uint8, C-contiguous) and its checksum into a row of an existing file.

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
    """Decoded images in the batches of the store ``root``; ``paths`` has only the name of the batches' folder."""

    root: str = ""

    @property
    def _folder(self) -> str:
        return open_store(self.root).where(self.paths[0])

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
    """Return the name of a batch in a store; ``kind`` is its file extension, such as :data:`PIXELS`."""
    return f"{folder}/{number:07}.{kind}"
