"""Pictures that a user hands to a model: JPEG and PNG, checked before they are decoded."""

from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.coco_pixels import imdecoded
from podline.data.sources import bounds
from podline.data.sources.jpeg import JpegError, inspect
from podline.errors import SourceError

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = len(_PNG) + 25  # bytes to the end of the first chunk
_CHUNK = 12  # bytes of a chunk without its content
_SAMPLES = {2: 3, 4: 2, 6: 4}  # of a pixel, by the type of colour; 1 of others


def check_picture(path: Path) -> bytes:
    """A picture's file, after a look at its header and its end.

    Raises:
        SourceError: it cannot be read, is no JPEG or PNG, is truncated, or is larger than anybody's picture.
    """
    try:
        if path.stat().st_size > bounds.IMAGE_BYTES:
            raise SourceError(f"{path} has {path.stat().st_size:,} bytes vs {bounds.IMAGE_BYTES:,} at most")
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    _check_bytes(data, str(path))
    return data


def _check_bytes(data: bytes, where: str) -> None:
    if data.startswith(_PNG):
        problem = _problem_of_png(data)
        if problem:
            raise SourceError(f"{where} {problem}")
        return
    try:
        inspect(data)
    except JpegError as error:
        kind = "is no JPEG and no PNG" if data[:2] != b"\xff\xd8" else str(error)
        raise SourceError(f"{where} {kind}") from error


def _problem_of_png(data: bytes) -> str:
    """What is wrong with a PNG's chunks, followed from the first to the last; empty if nothing is.

    Length, type, content, checksum (https://www.w3.org/TR/png-3/#5Chunk-layout); a decoder takes as much memory as a
    chunk says that it has.
    """
    header = data[len(_PNG) : _PNG_HEADER]
    if len(header) < _PNG_HEADER - len(_PNG) or header[:8] != b"\0\0\0\x0dIHDR":
        return "is damaged: a PNG without its header"
    width, height, depth, colour = struct.unpack_from(">IIBB", header, 8)
    if width * height > bounds.PIXELS:
        return f"has {width}×{height} pixels vs {bounds.PIXELS:,} at most"
    place, kind = _PNG_HEADER, b""
    for _ in range(bounds.PNG_CHUNKS):
        kind = data[place + 4 : place + 8]
        place += _CHUNK + int.from_bytes(data[place : place + 4], "big")
        if place > len(data) or kind in (b"", b"IHDR", b"IEND"):
            break
    if place > len(data) or kind != b"IEND":
        return f"is truncated or damaged: a PNG of {len(data):,} bytes without its end"
    unpacked = width * height * depth * _SAMPLES.get(colour, 1) // 8
    return f"is damaged: {width}×{height} pixels in {len(data):,} bytes" * (
        unpacked > bounds.DEFLATED_RATIO * len(data)
    )


def read_picture(path: Path) -> npt.NDArray[np.uint8]:
    """A picture as it is shown, turned as its EXIF says: uint8 (height, width, 3), red, green, blue.

    Grey ones are made coloured, transparency is left out, 16 bits become 8.

    Raises:
        SourceError: see :func:`check_picture`, or it cannot be decoded.
    """
    return _decoded(check_picture(path), str(path))


def decode_picture(data: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Like :func:`read_picture`, of a file's content; ``where`` is what errors call it."""
    _check_bytes(data, where)
    return _decoded(data, where)


def _decoded(data: bytes, where: str) -> npt.NDArray[np.uint8]:
    pixels = imdecoded(data, cv2.IMREAD_COLOR_RGB)
    if pixels is None:
        raise SourceError(f"{where} is damaged: it cannot be decoded")
    return pixels
