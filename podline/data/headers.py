"""Reads what an image's file says of itself before it is decoded: JPEG and PNG, told apart by their first bytes."""

from __future__ import annotations

import struct

from podline.data import bounds
from podline.data.jpeg import Jpeg, JpegError, exif_orientation, inspect

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file (https://www.w3.org/TR/png-3/#5PNG-file-signature)."""

_HEADER = len(PNG) + 25  # bytes to the end of the first chunk
_CHUNK = 12  # bytes of a chunk without its content
_SAMPLES = {0: 1, 2: 3, 3: 3, 4: 1, 6: 3}  # of a pixel without its alpha, by the type of colour; a palette's are three


def inspect_image(data: bytes) -> Jpeg:
    """Return what a JPEG or PNG file says of itself.

    Raises:
        JpegError: it is neither, is truncated, of a rare kind, or out of :mod:`podline.data.bounds`.
    """
    return inspect_png(data) if data.startswith(PNG) else inspect(data)


def inspect_png(data: bytes) -> Jpeg:
    """Follows a PNG's chunks from the first to the last.

    Length, type, content, checksum (https://www.w3.org/TR/png-3/#5Chunk-layout); a decoder takes as much memory as a
    chunk says that it has.

    Raises:
        JpegError: it is truncated, damaged, or out of bounds.
    """
    header = data[len(PNG) : _HEADER]
    if len(header) < _HEADER - len(PNG) or header[:8] != b"\0\0\0\x0dIHDR":
        raise JpegError("is damaged: a PNG without its header")
    width, height, _depth, colour = struct.unpack_from(">IIBB", header, 8)
    if not width * height:
        raise JpegError(f"has {width}×{height} pixels")
    if width * height > bounds.PIXELS:
        raise JpegError(f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most")
    place, kind, orientation = _HEADER, b"", 1
    while place <= len(data) and kind not in (b"IHDR", b"IEND"):
        length, kind = int.from_bytes(data[place : place + 4], "big"), data[place + 4 : place + 8]
        if kind == b"eXIf":
            orientation = exif_orientation(data[place + 8 : place + 8 + length])
        place += _CHUNK + length
        if not kind:
            break
    if place > len(data) or kind != b"IEND":
        raise JpegError(f"is truncated or damaged: a PNG of {len(data):,} bytes without its end")
    return Jpeg(width, height, _SAMPLES.get(colour, 1), orientation)
