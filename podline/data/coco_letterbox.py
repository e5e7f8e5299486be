"""Letter-box geometry: maps an image's coordinates to the network's square input and to heatmaps, and back.

There are two kinds of coordinates, half a pixel apart. A *joint* lies at a pixel: an integer is the centre of a pixel,
as in COCO's keypoints. A *box* is measured from the image's upper left corner: an integer is the border between two
pixels, as in COCO's boxes and polygons. Scaling applies to box coordinates, so joints are moved by half a pixel before
and after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.data.fitting import shown_size

Array = npt.NDArray[np.floating]
Image = npt.NDArray[np.uint8]
Vector = Array | tuple[float, float]

GRID = 64
"""Joints of records are multiples of 1/64 of a pixel: exact in float32, also after mirroring and shifts."""


@dataclass(frozen=True)
class LetterBox:
    """An image scaled to fit into a square, and centred there; all sizes are in pixels."""

    width: int
    height: int
    side: int

    @cached_property
    def size(self) -> tuple[int, int]:
        """Return the width and height of the scaled image, in whole pixels; the longer one equals the side."""
        height, width = shown_size(self.height, self.width, (self.side, self.side), "letterbox")
        return width, height

    @cached_property
    def offset(self) -> tuple[int, int]:
        """Return the number of columns left of the scaled image and of rows above it."""
        return (self.side - self.size[0]) // 2, (self.side - self.size[1]) // 2

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Return the scales of width and height; they differ by the rounding of :attr:`size`."""
        return self.size[0] / self.width, self.size[1] / self.height

    def joints_to_network(self, joints: npt.ArrayLike) -> Array:
        """Map joints (…, 2) of the image to the square, float64."""
        return joints_in_squares(joints, self.scale, self.offset)

    def joints_to_image(self, joints: npt.ArrayLike) -> Array:
        """Map joints (…, 2) of the square to the image, float64."""
        return (np.asarray(joints, np.float64) + 0.5 - self.offset) / self.scale - 0.5

    def boxes_to_network(self, boxes: npt.ArrayLike) -> Array:
        """Map boxes (…, 4), left, top, width, height, of the image to the square, float64."""
        return boxes_in_squares(boxes, self.scale, self.offset)

    def areas_to_network(self, areas: npt.ArrayLike) -> Array:
        """Convert areas in the image's pixels to the square's pixels, float64."""
        return areas_in_squares(areas, self.scale)

    def place(self, image: Image, fill: npt.ArrayLike = 0, out: Image | None = None) -> Image:
        """Draw the image into its square.

        Args:
            image: uint8, (height, width, channels) or (height, width).
            fill: the colour of the border, a number or one per channel.
            out: the square to draw into, uint8 (side, side, …); new memory by default.

        Returns:
            uint8, (side, side, …). Enlarging interpolates linearly. Shrinking filters with a triangle as wide as two
            pixels of the result, see :func:`smoothed`. Both keep this geometry.
        """
        square = np.empty((self.side, self.side, *image.shape[2:]), np.uint8) if out is None else out
        (left, top), (width, height) = self.offset, self.size
        rows = square[top : top + height]
        for border in (square[:top], square[top + height :], rows[:, :left], rows[:, left + width :]):
            border[...] = fill
        target = rows[:, left : left + width]
        smooth = smoothed(image, max(self.width, self.height) / self.side)
        cv2.resize(smooth, self.size, dst=target, interpolation=cv2.INTER_LINEAR)
        return square


def smoothed(image: Image, factor: float) -> Image:
    """Blur an image so that linear interpolation every ``factor`` pixels does not alias.

    Linear interpolation is a triangle filter as wide as two pixels. A Gaussian before it widens the filter to nearly a
    triangle of two pixels of the result (above 45 dB on photographs). This takes a quarter of the time of OpenCV's
    averaging over areas.

    Args:
        image: uint8, (height, width, channels) or (height, width).
        factor: the shrinking factor; values up to 1 leave the image unchanged.
    """
    if factor <= 1:
        return image
    deviation = math.sqrt(factor**2 - 1) / 2
    size = 2 * max(1, math.ceil(1.5 * deviation - 0.5)) + 1
    blurred: Any = cv2.GaussianBlur(image, (size, size), deviation, borderType=cv2.BORDER_REPLICATE)
    return blurred


def joints_in_squares(joints: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Map joints (…, 2) to squares with a scale and offset each, (…, 2), float64."""
    return (np.asarray(joints, np.float64) + 0.5) * scale + offset - 0.5


def boxes_in_squares(boxes: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Map boxes (…, 4), left, top, width, height, to squares with a scale and offset each, float64."""
    moved = np.array(boxes, np.float64) * np.concatenate([scale, scale], axis=-1)
    moved[..., :2] += offset
    return moved


def areas_in_squares(areas: npt.ArrayLike, scale: Vector) -> Array:
    """Convert areas (…) to squares with a scale each, float64."""
    return np.asarray(areas, np.float64) * np.prod(scale, axis=-1)


def from_cells(places: npt.ArrayLike, stride: float) -> Array:
    """Map places (…, 2) in a heatmap to joints of the network's input, float64."""
    return (np.asarray(places, np.float64) + 0.5) * stride - 0.5


def snapped(joints: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round coordinates to multiples of 1/64 of a pixel, float32.

    The error is below 1/128 of a pixel. Up to 131,072 pixels float32 represents such numbers, their distances to whole
    pixels and their mirror images exactly.
    """
    return (np.rint(np.asarray(joints, np.float64) * GRID) / GRID).astype(np.float32)
