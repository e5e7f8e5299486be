"""Sums pixels exactly, in integers, so that mean and standard deviation do not depend on how the work is divided."""

from __future__ import annotations

import math
from collections.abc import Iterable

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.frozen import Frozen

_EXACT = 2**24
"""The largest count that OpenCV's float32 histograms represent exactly."""
_VALUES = np.arange(256)


class PixelSums(Frozen):
    """The number of pixels, and each channel's sum of values and sum of squares, for mean and standard deviation."""

    count: int
    sums: tuple[int, ...]
    squares: tuple[int, ...]

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean per channel, on the scale 0…255."""
        return tuple(total / self.count for total in self.sums)

    @property
    def std(self) -> tuple[float, ...]:
        """The population standard deviation per channel; n·Σx² - (Σx)² is computed in integers."""
        return tuple(
            math.sqrt(self.count * square - total * total) / self.count
            for total, square in zip(self.sums, self.squares, strict=True)
        )


def pixel_sums(images: npt.NDArray[np.uint8]) -> PixelSums:
    """Sum the pixels of some images, uint8 (n, height, width, channels), by their histograms."""
    channels = images.shape[-1]
    pixels = np.ascontiguousarray(images).reshape(-1, 1, channels)
    counts = np.zeros((channels, len(_VALUES)), np.int64)
    for start in range(0, len(pixels), _EXACT):
        for channel in range(channels):
            histogram = cv2.calcHist([pixels[start : start + _EXACT]], [channel], None, [256], [0, 256])
            counts[channel] += np.asarray(histogram, np.int64).ravel()
    return PixelSums(
        count=len(pixels), sums=tuple((counts @ _VALUES).tolist()), squares=tuple((counts @ _VALUES**2).tolist())
    )


def without(total: PixelSums, part: PixelSums) -> PixelSums:
    """Return the sums of ``total`` minus those of ``part``, a subset of its pixels."""
    return PixelSums(
        count=total.count - part.count,
        sums=tuple(one - other for one, other in zip(total.sums, part.sums, strict=True)),
        squares=tuple(one - other for one, other in zip(total.squares, part.squares, strict=True)),
    )


def add_up(parts: Iterable[PixelSums]) -> PixelSums:
    """Add the sums of several sets of pixels; their order does not matter."""
    every = list(parts)
    return PixelSums(
        count=sum(part.count for part in every),
        sums=tuple(map(sum, zip(*(part.sums for part in every), strict=True))),
        squares=tuple(map(sum, zip(*(part.squares for part in every), strict=True))),
    )
