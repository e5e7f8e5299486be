"""Decodes and letter-boxes a JPEG file; conversion and reading share this code."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.headers import inspect_image

Pixels = npt.NDArray[np.uint8]

# COCO annotates pixels as stored, so OpenCV must not apply the EXIF orientation.
_AS_STORED = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
_LARGE_BLOCK = 31 << 20


def decode(data: bytes | npt.NDArray[np.uint8], width: int, height: int) -> Pixels | None:
    """Decode an image as it was annotated; OpenCV converts grey and CMYK to RGB.

    Args:
        data: a JPEG file whose markers are in order.
        width: width of the annotated image; the EXIF orientation is applied only if the sizes match after it.
        height: height of the annotated image.

    Returns:
        uint8 (height, width, 3), RGB; another size, or None, if the file does not match its markers.
    """
    pixels = imdecoded(data, _AS_STORED)
    if pixels is None or pixels.shape[:2] == (height, width):
        return pixels
    return turned(pixels, inspect_image(bytes(data)).orientation)


def imdecoded(data: bytes | npt.NDArray[np.uint8], how: int) -> Pixels | None:
    """Decode an image file with OpenCV; return None if OpenCV fails.

    Raises:
        MemoryError: the memory is too small for the pixels.
    """
    try:
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), how)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError(str(error)) from error
        return None
    return pixels


def ready_for_many() -> None:
    """Configure this process to decode many images, one at a time, beside other such processes.

    Linux's C library returns freed memory to the kernel if it exceeds twice the largest freed block. Getting it back
    page by page took a quarter of the time. One freed block of up to 32 MB raises this limit; it need not be written
    to.
    """
    cv2.setNumThreads(1)
    np.empty(_LARGE_BLOCK, np.uint8)


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Rotate or mirror stored pixels by an EXIF orientation, 1 … 8."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
