"""Decodes a JPEG file and letter-boxes it, in one way for conversion and for reading."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.headers import inspect_image

Pixels = npt.NDArray[np.uint8]

# COCO annotates pixels as they are stored, so OpenCV is not to turn them by itself.
_AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_LARGE_BLOCK = 31 << 20


def decode(data: bytes | npt.NDArray[np.uint8], width: int, height: int) -> Pixels | None:
    """Decode an image as it was annotated; OpenCV makes RGB of grey and CMYK.

    Args:
        data: a JPEG file whose markers are in order.
        width: of the image that was annotated; where only the image turned as its EXIF says has this size, it is.
        height: of the same image.

    Returns:
        uint8 (height, width, 3), RGB; another size, or None, where the file is not what its markers say.
    """
    pixels = imdecoded(data, _AS_STORED)
    if pixels is None or pixels.shape[:2] == (height, width):
        return pixels
    return turned(pixels, inspect_image(bytes(data)).orientation)


def imdecoded(data: bytes | npt.NDArray[np.uint8], how: int) -> Pixels | None:
    """Return what OpenCV makes of an image's file; None where it makes nothing of it, or fails.

    Raises:
        MemoryError: there is too little memory for its pixels.
    """
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), how)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(str(error)) from error
        return None
    return pixels


def ready_for_many() -> None:
    """Set this process up to decode many images, one at a time; others beside it do the same.

    The C library of Linux gives freed memory back to the kernel beyond twice the largest block that was ever freed, and
    gets it back page by page, which was a quarter of the time. Blocks of up to 32 MB count, and need not be touched.
    """
    cv2.setNumThreads(1)
    np.empty(_LARGE_BLOCK, np.uint8)


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Turn stored pixels as an EXIF orientation, 1 … 8, says."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
