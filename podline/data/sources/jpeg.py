"""Parses a JPEG file's markers before decoding: size, scans, whether it is whole.

ITU-T T.81, annex B: markers are 0xFF and a byte; most begin a segment whose length follows. Entropy-coded data come
after SOS; a 0xFF in them is followed by 0x00 or is a restart marker.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import numpy as np

from podline.data.sources import bounds, lfs

_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
# Baseline, extended sequential and progressive, Huffman-coded: what every decoder reads.
_FRAMES = (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
# It begins with a literal byte (the last of several 0xFF), for which the search is twenty times as fast.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_ANY = 0xFF
_MANY = 4096  # bytes, for which NumPy is the faster way
_AT_ONCE = 1 << 16  # bytes that it looks at: what it finds in them decides whether it looks at more
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
    """Reads a file's markers from the first to the last.

    Raises:
        JpegError: it is no JPEG, is truncated, of a rare kind, or out of :mod:`podline.data.sources.bounds`.
    """
    if lfs.is_lfs_pointer(data):
        raise JpegError(lfs.PROBLEM)
    if data[:2] != bytes((0xFF, _SOI)):
        raise JpegError(f"is no JPEG and no PNG: it starts with {data[:2].hex() or 'nothing'} vs ffd8 or 8950")
    frame, orientation, scans, place = None, 1, 0, 2
    for _ in range(bounds.JPEG_SEGMENTS):
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
            orientation = exif_orientation(segment[6:])
        elif marker == _SOS:
            scans += 1
            if scans > bounds.JPEG_SCANS:
                raise JpegError(f"has more than {bounds.JPEG_SCANS} scans")
            place = _passed_over(data, place)
    else:
        raise JpegError(f"has more than {bounds.JPEG_SEGMENTS:,} segments")
    if frame is None or not scans:
        raise JpegError("is a JPEG without an image")
    pixels = frame[0] * frame[1]
    if pixels * scans > bounds.SCANNED_PIXELS:
        raise JpegError(f"has {scans} scans of {pixels:,} pixels vs {bounds.SCANNED_PIXELS:,} together at most")
    needed = pixels * (3 + 2 * frame[2])
    if scans > 1 and needed > bounds.SCANNED_BYTES:
        raise JpegError(
            f"has {scans} scans of {pixels:,} pixels, which take {needed:,} bytes vs {bounds.SCANNED_BYTES:,} at most"
        )
    if pixels > bounds.PIXELS_OF_A_BYTE * len(data):
        raise JpegError(f"is damaged: {frame[0]}×{frame[1]} pixels in {len(data):,} bytes")
    return Jpeg(*frame, orientation)


def _marker(data: bytes, place: int) -> tuple[int, int]:
    """The next marker from a place on, and the place after it; entropy-coded data before it are passed over."""
    found = _NEXT_MARKER.search(data, place)
    if found is None:
        raise JpegError(f"is truncated: {len(data):,} bytes, and no end marker")
    return data[found.end() - 1], found.end()


def _passed_over(data: bytes, place: int) -> int:
    """A place that no marker lies before; if many bytes follow, where the first 0xFF is that no 0x00 follows.

    NumPy looks at them three times as fast as a regular expression, and other threads may go on meanwhile.
    """
    while len(data) - place >= _MANY:
        values = np.frombuffer(data, np.uint8, min(_AT_ONCE, len(data) - place), place)
        found = values[:-1] == _ANY
        found &= values[1:] != 0
        first = int(found.argmax())
        if found[first]:
            return place + first
        place += len(found)
    return place


def _segment(data: bytes, place: int) -> bytes:
    """The content of the segment whose length stands at a place."""
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


def exif_orientation(tiff: bytes) -> int:
    """The orientation in a TIFF header's first directory; 1 where there is none, or what is there makes no sense."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return 1
    (first,) = struct.unpack_from(f"{order}I", tiff, 4)
    if first + 2 > len(tiff):
        return 1
    (entries,) = struct.unpack_from(f"{order}H", tiff, first)
    for place in range(first + 2, min(first + 2 + 12 * entries, len(tiff) - 11), 12):
        tag, _kind, _count, value = struct.unpack_from(f"{order}HHIH", tiff, place)
        if tag == ORIENTATION:
            return value if 1 <= value <= 8 else 1
    return 1
