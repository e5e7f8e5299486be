"""Decoded images by row, each with its CRC-32C behind it: in a file of the cache, or in batches of a store."""

from __future__ import annotations

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

from podline.data.rows import RowBlock
from podline.errors import SourceError, StoreError

PIXELS = "pixels"
"""What the file of decoded images is called in its folder."""

_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class DecodedRows(RowBlock):
    """Decoded images in a file."""

    def read_into(self, out: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], images: npt.NDArray[np.int64]) -> None:
        """Read image ``images[i]`` into ``out[rows[i]]``, and check it; see :meth:`RowBlock.read_into`."""
        size = out.shape[1]
        for row, found in zip(rows.tolist(), self._found(size + _CRC.size, images), strict=True):
            pixels = np.frombuffer(found, np.uint8)[:size]
            if len(found) != size + _CRC.size or _CRC.pack(google_crc32c.value(pixels)) != found[size:]:
                raise SourceError(
                    f"{self.path}: decoded images are damaged there; delete {Path(self.path).parent} and convert again"
                )
            out[row] = pixels

    def _found(self, length: int, images: npt.NDArray[np.int64]) -> Iterator[bytes]:
        with self._open() as stream:
            for image in images.tolist():
                yield os.pread(stream.fileno(), length, image * length)


def rows_of(folder: Path, shape: Sequence[int]) -> DecodedRows:
    """Return the images that were decoded into a folder.

    Args:
        folder: which.
        shape: of every image.

    Raises:
        SourceError: the file is gone.
    """
    path = folder / PIXELS
    count = path.stat().st_size // (math.prod(shape) + _CRC.size) if path.exists() else 0
    return DecodedRows(PIXELS, str(path), count)


def write_row(path: str, row: int, pixels: npt.NDArray[Any]) -> None:
    """Write a decoded image into a file that is there.

    Args:
        path: of the file.
        row: the image's number in it.
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
            while left:  # where the disk gets full, a part is written, and no error is raised
                count = os.pwrite(file, left, start)
                left, start = left[count:], start + count
        finally:
            os.close(file)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
