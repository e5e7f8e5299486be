"""Reads what an image's file says of itself before it is decoded: JPEG and PNG, told apart by their first bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from podline.data.sources import bounds
from podline.data.sources.jpeg import Jpeg, JpegError, exif_orientation, inspect

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file (https://www.w3.org/TR/png-3/#5PNG-file-signature)."""

_HEADER = len(PNG) + 25  # bytes to the end of the first chunk
_CHUNK = 12  # bytes of a chunk without its content
_WITH_ALPHA = (4, 6)
_SAMPLES = {0: 1, 2: 3, 3: 3, 4: 1, 6: 3}  # of a pixel without its alpha, by the type of colour; a palette's are three


class Png(NamedTuple):
    """A whole PNG file.

    Attributes:
        image: what a JPEG file would say of itself as well.
        depth: bits of a sample.
        colour: the type of colour: 0 grey, 2 colours, 3 a palette, 4 and 6 grey and colours with alpha.
        transparent: whether some of it may be.
    """

    image: Jpeg
    depth: int
    colour: int
    transparent: bool


def inspect_image(data: bytes) -> Jpeg:
    """What a JPEG or PNG file says of itself.

    Raises:
        JpegError: it is neither, is truncated, of a rare kind, or out of :mod:`podline.data.sources.bounds`.
    """
    return inspect_png(data).image if data.startswith(PNG) else inspect(data)


def inspect_png(data: bytes) -> Png:
    """Follows a PNG's chunks from the first to the last.

    Length, type, content, checksum (https://www.w3.org/TR/png-3/#5Chunk-layout); a decoder takes as much memory as a
    chunk says that it has.

    Raises:
        JpegError: it is truncated, damaged, or out of bounds.
    """
    header = data[len(PNG) : _HEADER]
    if len(header) < _HEADER - len(PNG) or header[:8] != b"\0\0\0\x0dIHDR":
        raise JpegError("is damaged: a PNG without its header")
    width, height, depth, colour = struct.unpack_from(">IIBB", header, 8)
    if not width * height:
        raise JpegError(f"has {width}×{height} pixels")
    if width * height > bounds.PIXELS:
        raise JpegError(f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most")
    samples = width * height * depth * _SAMPLES.get(colour, 1) // 8
    place, kind, orientation, transparent = _HEADER, b"", 1, colour in _WITH_ALPHA
    for _ in range(bounds.PNG_CHUNKS):
        length, kind = int.from_bytes(data[place : place + 4], "big"), data[place + 4 : place + 8]
        if kind == b"eXIf":
            orientation = exif_orientation(data[place + 8 : place + 8 + length])
        transparent |= kind == b"tRNS"
        place += _CHUNK + length
        if place > len(data) or kind in (b"", b"IHDR", b"IEND"):
            break
    if place > len(data) or kind != b"IEND":
        raise JpegError(f"is truncated or damaged: a PNG of {len(data):,} bytes without its end")
    if samples > bounds.DEFLATED_RATIO * len(data):
        raise JpegError(f"is damaged: {width}×{height} pixels in {len(data):,} bytes")
    if samples > bounds.SAMPLE_BYTES:
        raise JpegError(f"has {width}×{height} pixels of {samples:,} bytes vs {bounds.SAMPLE_BYTES:,} at most")
    return Png(Jpeg(width, height, _SAMPLES.get(colour, 1), orientation), depth, colour, transparent)
