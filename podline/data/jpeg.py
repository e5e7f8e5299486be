"""Parses a JPEG file's markers before decoding: size, scans, whether it is whole.

ITU-T T.81, annex B: markers are 0xFF and a byte; most begin a segment whose length follows. Entropy-coded data come
after SOS; a 0xFF in them is followed by 0x00 or is a restart marker.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from PIL import Image

from podline.data import bounds, lfs

_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
# Baseline, extended sequential and progressive, Huffman-coded: what every decoder reads.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
# It begins with a literal byte (the last of several 0xFF), for which the search is twenty times as fast.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
ORIENTATION = 0x0112
"""The EXIF field that says how stored pixels are to be turned."""


class Jpeg(NamedTuple):
    """A whole JPEG file.

    Attributes:
        width: of the stored pixels.
        height: likewise.
        components: 1 (grey), 3 or 4 (CMYK).
        orientation: EXIF's, 1 … 8: how the stored pixels are to be turned for showing; 1 where nothing is said.
    """

    width: int
    height: int
    components: int
    orientation: int


class JpegError(ValueError):
    """Why a file is not a JPEG image that can be decoded; a phrase that follows the file's name."""


def inspect(data: bytes) -> Jpeg:
    """Read a file's markers from the first to the last.

    Raises:
        JpegError: it is no JPEG, is truncated, of a rare kind, or out of :mod:`podline.data.bounds`.
    """
    if lfs.is_lfs_pointer(data):
        raise JpegError(lfs.PROBLEM)
    if data[:2] != bytes((0xFF, _SOI)):
        raise JpegError(f"is no JPEG and no PNG: it starts with {data[:2].hex() or 'nothing'} vs ffd8 or 8950")
    frame, orientation, scanned, place = None, 1, False, 2
    while True:
        marker, place = _marker(data, place)
        if marker == _EOI:
            break
        segment = _segment(data, place)
        place += 2 + len(segment)
        if marker in _FRAMES:
            frame = _frame(segment)
        elif marker in _OTHER_FRAMES:
            raise JpegError(f"is a JPEG of a rare kind (marker ff{marker:02x}) that is not decoded")
        elif marker == _APP1 and segment.startswith(b"Exif\0\0"):
            orientation = exif_orientation(segment)
        scanned |= marker == _SOS
    if frame is None or not scanned:
        raise JpegError("is a JPEG without an image")
    return Jpeg(*frame, orientation)


def _marker(data: bytes, place: int) -> tuple[int, int]:
    """Return the next marker from a place on, and the place after it; entropy-coded data before it are skipped."""
    found = _NEXT_MARKER.search(data, place)
    if found is None:
        raise JpegError(f"is truncated: {len(data):,} bytes, and no end marker")
    return data[found.end() - 1], found.end()


def _segment(data: bytes, place: int) -> bytes:
    """Return the content of the segment whose length stands at a place."""
    length = int.from_bytes(data[place : place + 2], "big")
    if length < 2 or place + length > len(data):
        raise JpegError(f"is truncated or damaged: a segment of {length:,} bytes at byte {place:,} of {len(data):,}")
    return data[place + 2 : place + length]


def _frame(segment: bytes) -> tuple[int, int, int]:
    """Width, height and components, in bounds."""
    if len(segment) < 6:
        raise JpegError("is damaged: its frame header is too short")
    precision, height, width, components = struct.unpack(">BHHB", segment[:6])
    if precision != 8:
        raise JpegError(f"has {precision} bits a sample vs 8")
    if not width * height:
        raise JpegError(f"has {width}×{height} pixels")
    if width * height > bounds.PIXELS:
        raise JpegError(f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most")
    if components not in (1, 3, 4):
        raise JpegError(f"has {components} components vs 1, 3 or 4")
    return width, height, components


def exif_orientation(exif: bytes) -> int:
    """Return the orientation that EXIF data say, 1 … 8; 1 where they say none, or make no sense."""
    found = Image.Exif()
    try:
        found.load(exif)
        value = found.get(ORIENTATION, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1
