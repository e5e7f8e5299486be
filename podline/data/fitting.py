"""Resizes pictures to the image shape of a data set; conversion and prediction share this code."""

from __future__ import annotations

import functools
from typing import Any

import cv2
import numpy as np

from podline.base.arrays import Pixels
from podline.documents.manifest import Fit

SQUEEZE: Fit = "squeeze"


def fitted(pixels: Pixels, shape: tuple[int, ...], fit: Fit = SQUEEZE, whole: tuple[int, int] | None = None) -> Pixels:
    """Resize a picture to a shape.

    Args:
        pixels: uint8 (height, width, 3), red, green, blue; or (height, width), one channel.
        shape: (height, width, channels), with 1 channel (grey) or 3.
        fit: ``letterbox`` keeps the whole picture, with black borders; ``crop`` keeps the largest centred part;
            ``squeeze`` keeps the whole picture but changes its proportions.
        whole: height and width of the picture before a decoder reduced it; they decide the size of a letterbox's
            content. By default those of ``pixels``.

    Returns:
        uint8 of ``shape``. Shrinking averages over areas, enlarging interpolates linearly; both keep the geometry of
        :class:`podline.data.letterbox.LetterBox`.
    """
    height, width, channels = shape
    grey: Any = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if channels == 1 and pixels.ndim == 3 else pixels
    if fit == "crop":
        tall, wide = grey.shape[:2]
        grey, whole = middle(grey, *_middle_size(tall, wide, height, width)), None
    tall, wide = whole or grey.shape[:2]
    size = shown_size(tall, wide, shape, fit)
    return _centred(_scaled(grey, *size), height, width).reshape(height, width, channels)


def shown_size(tall: int, wide: int, shape: tuple[int, ...], fit: Fit) -> tuple[int, int]:
    """Return height and width of the picture inside :func:`fitted`'s result, without a letterbox's borders."""
    height, width = shape[:2]
    if fit != "letterbox":
        return height, width
    return min(height, _rounded(width, tall, wide)), min(width, _rounded(height, wide, tall))


@functools.lru_cache(maxsize=1024)  # each JPEG asks four times
def reduction(tall: int, wide: int, shape: tuple[int, ...], fit: Fit) -> int:
    """Return the largest factor, 1, 2, 4 or 8, by which a decoder may reduce a picture before :func:`fitted`.

    The reduced picture has at least twice the result's height and width, so that fitting still averages.
    """
    if fit == "crop":
        tall, wide = _middle_size(tall, wide, *shape[:2])
    rows, columns = shown_size(tall, wide, shape, fit)
    return next((by for by in (8, 4, 2) if tall // by >= 2 * rows and wide // by >= 2 * columns), 1)


def _scaled(pixels: Pixels, height: int, width: int) -> Pixels:
    """Resize a picture. If one direction shrinks and the other grows, shrink the first before enlarging the second."""
    for rows, columns in ((min(height, pixels.shape[0]), min(width, pixels.shape[1])), (height, width)):
        if pixels.shape[:2] != (rows, columns):
            shrinks = rows <= pixels.shape[0] and columns <= pixels.shape[1]
            how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
            scaled: Any = cv2.resize(pixels, (columns, rows), interpolation=how)
            pixels = scaled
    return pixels


def middle(pixels: Pixels, rows: int, columns: int) -> Pixels:
    """Return a view of the ``rows`` × ``columns`` pixels in the centre."""
    top, left = (pixels.shape[0] - rows) // 2, (pixels.shape[1] - columns) // 2
    return pixels[top : top + rows, left : left + columns]


def _middle_size(tall: int, wide: int, height: int, width: int) -> tuple[int, int]:
    return min(tall, _rounded(wide, height, width)), min(wide, _rounded(tall, width, height))


def _rounded(size: int, factor: int, divisor: int) -> int:
    """Return size · factor / divisor, rounded half up; integers give the same result on every machine."""
    return max(1, (2 * size * factor + divisor) // (2 * divisor))


def _centred(pixels: Pixels, height: int, width: int) -> Pixels:
    rows, columns = pixels.shape[:2]
    if (rows, columns) == (height, width):
        return pixels
    square = np.zeros((height, width, *pixels.shape[2:]), np.uint8)
    middle(square, rows, columns)[...] = pixels
    return square
