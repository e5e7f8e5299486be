"""Identifies an image by a hash of its compressed picture, so that edited metadata do not change the identity.

Splits, the order of records, versions, reviews and forgotten images all use this identity. It depends neither on
Podline's settings nor on a decoder:

- JPEG: all segments up to the end marker except APPn and COM. The EXIF orientation counts, and so does the colour space
  that a decoder assumes, such as RGB or YCbCr: JFIF's APP0 and the transform in Adobe's APP14 decide it. A colour
  profile (ICC) does not count, since no profile is applied.
- PNG: the critical chunks, tRNS and the EXIF orientation. The division of IDAT's data into chunks does not count.
- Other formats, and damaged files: all bytes of the file.
- An array without a file: its shape, type and values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.headers import JPEG, PNG, PictureError, exif_in, orientation_of, segments

IDENTITY_BYTES = 16
"""The length of an identity: the first half of a sha256."""

_APPS, _APP0, _APP1, _APP14, _COM = range(0xE0, 0xF0), 0xE0, 0xE1, 0xEE, 0xFE
_FRAMES = (0xC0, 0xC1, 0xC2)


class Identified(NamedTuple):
    """The identity of an image file (16 bytes), and the number of bytes that it covers: the file without metadata."""

    identity: bytes
    bytes: int


def identified(data: bytes) -> Identified:
    """Return an image file's identity, and the number of bytes that it covers."""
    try:
        parts = list(_of_jpeg(data) if data.startswith(JPEG) else _of_png(data) if data.startswith(PNG) else [data])
    except PictureError:
        parts = [data]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return Identified(digest.digest()[:IDENTITY_BYTES], sum(map(len, parts)))


def identities_of(images: npt.NDArray[np.generic]) -> npt.NDArray[np.bytes_]:
    """Return the identities of images that have no file: (n, …) of any dtype to S16 (n,)."""
    rows = np.ascontiguousarray(images)
    start = hashlib.sha256(f"{images.dtype.str} {images.shape[1:]}".encode())

    def digest(row: npt.NDArray[np.generic]) -> bytes:
        found = start.copy()
        found.update(row.data)
        return found.digest()[:IDENTITY_BYTES]

    return np.array([digest(row) for row in rows], f"S{IDENTITY_BYTES}")


def hexadecimal(identities: npt.NDArray[np.bytes_]) -> list[str]:
    """Return identities, S16 (n,), in hexadecimal; NumPy drops zero bytes at their ends, which are restored."""
    return [identity.ljust(IDENTITY_BYTES, b"\0").hex() for identity in identities.tolist()]


def _of_jpeg(data: bytes) -> Iterator[bytes | memoryview]:
    """Yield a JPEG's segments without metadata, then its orientation and colour space."""
    orientation, jfif, transform, components = 1, False, -1, b""
    for marker, segment, whole in segments(data):
        if marker == _APP1 and segment.startswith(b"Exif\0\0"):
            orientation = orientation_of(partial(exif_in, segment))
        jfif |= marker == _APP0 and segment.startswith(b"JFIF\0")
        if marker == _APP14 and segment.startswith(b"Adobe") and len(segment) >= 12:
            transform = segment[11]
        if marker in _FRAMES:
            components = segment[6::3]
        if marker not in _APPS and marker != _COM:
            yield whole
    yield f"{orientation} {_colours(components, jfif, transform)}".encode()


def _colours(components: bytes, jfif: bool, transform: int) -> str:
    """Return the colour space that libjpeg assumes; empty for the usual ones, grey and YCbCr."""
    if len(components) == 4:
        return "CMYK" if transform < 0 else f"Adobe {transform}"
    if len(components) != 3 or jfif:
        return ""
    return "RGB" if transform == 0 or (transform < 0 and components == b"RGB") else ""


def _of_png(data: bytes) -> Iterator[bytes]:
    """Yield a PNG's chunks without metadata, then its orientation."""
    place, kind, orientation = len(PNG), b"", 1
    while kind != b"IEND":
        length, before = int.from_bytes(data[place : place + 4]), kind
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        if len(kind) < 4 or len(content) < length:
            raise PictureError("is truncated")
        if kind == b"eXIf":
            orientation = orientation_of(partial(exif_in, b"Exif\0\0" + content))
        if kind == b"tRNS" or not kind[0] & 0x20:  # a critical chunk begins with a capital letter
            yield content if kind == before == b"IDAT" else kind + content
        place += 12 + length
    yield str(orientation).encode()
