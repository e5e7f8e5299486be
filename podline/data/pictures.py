"""Anybody's pictures: JPEG and PNG files of any size, grey or in colour, checked before they are decoded."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.coco_pixels import imdecoded
from podline.data.sources import bounds
from podline.data.sources.jpeg import JpegError, inspect
from podline.errors import SourceError

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


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
    if data.startswith(_PNG):
        width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
        if width * height > bounds.PIXELS:
            raise SourceError(f"{path} has {width}×{height} pixels vs {bounds.PIXELS:,} at most")
        if _PNG_END not in data[-64:]:
            raise SourceError(f"{path} is truncated: a PNG of {len(data):,} bytes without its end")
        return data
    try:
        inspect(data)
    except JpegError as error:
        kind = "is no JPEG and no PNG" if data[:2] != b"\xff\xd8" else str(error)
        raise SourceError(f"{path} {kind}") from error
    return data


def read_picture(path: Path) -> npt.NDArray[np.uint8]:
    """A picture as it is shown, turned as its EXIF says: uint8 (height, width, 3), red, green, blue.

    Grey ones are made coloured, transparency is left out, 16 bits become 8.

    Raises:
        SourceError: see :func:`check_picture`, or it cannot be decoded.
    """
    pixels = imdecoded(check_picture(path), cv2.IMREAD_COLOR_RGB)
    if pixels is None:
        raise SourceError(f"{path} is damaged: it cannot be decoded")
    return pixels
