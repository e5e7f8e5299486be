"""Letter-box geometry: from an image's own coordinates to the network's square input, to its heatmaps, and back.

Two kinds of coordinates, half a pixel apart. A *joint* lies at a pixel: an integer is the centre of that pixel, as COCO
annotates keypoints. A *box* is measured from the image's upper left corner: an integer is the border between two
pixels, as COCO annotates boxes and polygons. Scaling acts on the second kind, so joints are moved there and back by
half a pixel.
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
    """An image of a width and a height, in pixels, scaled to fit into a square of a side and centred there."""

    width: int
    height: int
    side: int

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the scaled image, whole pixels, from 1 to the side; the longer one is the side."""
        height, width = shown_size(self.height, self.width, (self.side, self.side), "letterbox")
        return width, height

    @cached_property
    def offset(self) -> tuple[int, int]:
        """Columns to the left of the scaled image and rows above it."""
        return (self.side - self.size[0]) // 2, (self.side - self.size[1]) // 2

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The scales of width and height; they differ by the rounding of :attr:`size`."""
        return self.size[0] / self.width, self.size[1] / self.height

    def joints_to_network(self, joints: npt.ArrayLike) -> Array:
        """Joints (…, 2) of the image as joints of the square, float64."""
        return joints_in_squares(joints, self.scale, self.offset)

    def joints_to_image(self, joints: npt.ArrayLike) -> Array:
        """Joints (…, 2) of the square as joints of the image, float64."""
        return (np.asarray(joints, np.float64) + 0.5 - self.offset) / self.scale - 0.5

    def boxes_to_network(self, boxes: npt.ArrayLike) -> Array:
        """Boxes (…, 4), left, top, width, height, of the image as boxes of the square, float64."""
        return boxes_in_squares(boxes, self.scale, self.offset)

    def areas_to_network(self, areas: npt.ArrayLike) -> Array:
        """Areas in the image's pixels as areas in the square's, float64."""
        return areas_in_squares(areas, self.scale)

    def place(self, image: Image, fill: npt.ArrayLike = 0, out: Image | None = None) -> Image:
        """Put the image into its square.

        Args:
            image: uint8, (height, width, channels) or (height, width).
            fill: the colour around it, a number or one per channel.
            out: uint8, (side, side, …), where to put it; new memory by default.

        Returns:
            uint8, (side, side, …). Enlarged linearly; shrunk as if by a triangle as wide as two pixels of the result,
            see :func:`smoothed`. Both keep to this geometry.
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

    Linear interpolation is a triangle as wide as two pixels; with a Gaussian before it whose variance makes up for the
    difference it is, nearly, one as wide as two pixels of the result (above 45 dB on photographs). A quarter of the
    time of OpenCV's averaging over areas.

    Args:
        image: uint8, (height, width, channels) or (height, width).
        factor: up to 1, nothing is to be done.
    """
    if factor <= 1:
        return image
    deviation = math.sqrt(factor**2 - 1) / 2
    size = 2 * max(1, math.ceil(1.5 * deviation - 0.5)) + 1
    blurred: Any = cv2.GaussianBlur(image, (size, size), deviation, borderType=cv2.BORDER_REPLICATE)
    return blurred


def joints_in_squares(joints: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Return joints (…, 2) in squares whose scales and offsets, (…, 2), may be each one's own, float64."""
    return (np.asarray(joints, np.float64) + 0.5) * scale + offset - 0.5


def boxes_in_squares(boxes: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Return boxes (…, 4), left, top, width, height, in such squares, float64."""
    moved = np.array(boxes, np.float64) * np.concatenate([scale, scale], axis=-1)
    moved[..., :2] += offset
    return moved


def areas_in_squares(areas: npt.ArrayLike, scale: Vector) -> Array:
    """Return areas (…) in such squares, float64."""
    return np.asarray(areas, np.float64) * np.prod(scale, axis=-1)


def from_cells(places: npt.ArrayLike, stride: float) -> Array:
    """Places (…, 2) in a heatmap as joints of the network's input, float64."""
    return (np.asarray(places, np.float64) + 0.5) * stride - 0.5


def snapped(joints: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Coordinates rounded to the next multiple of 1/64 of a pixel, float32.

    The error is below 1/128 of a pixel; up to 131,072 pixels float32 holds such numbers, their differences to whole
    pixels and their mirror images exactly.
    """
    return (np.rint(np.asarray(joints, np.float64) * GRID) / GRID).astype(np.float32)
