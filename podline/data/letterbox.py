"""Letter-box geometry: maps an image's coordinates to the network's square input and to heatmaps, and back.

There are two kinds of coordinates, half a pixel apart. A *joint* lies at a pixel: an integer is the centre of a pixel,
as in COCO's keypoints. A *box* is measured from the image's upper left corner: an integer is the border between two
pixels, as in COCO's boxes and polygons. Scaling applies to box coordinates, so joints are moved by half a pixel before
and after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from podline.data.fitting import shown_size

Array = npt.NDArray[np.floating]
Vector = Array | tuple[float, float]

GRID = 64
"""Joints of records are multiples of 1/64 of a pixel: exact in float32, also after mirroring and shifts."""


@dataclass(frozen=True)
class LetterBox:
    """The geometry of an image scaled to fit into a square and centred there; all sizes are in pixels.

    :func:`podline.data.fitting.fitted` computes the square's pixels.
    """

    width: int
    height: int
    side: int

    @cached_property
    def size(self) -> tuple[int, int]:
        """Return the width and height of the scaled image, in whole pixels; the larger value equals ``side``."""
        height, width = shown_size(self.height, self.width, (self.side, self.side), "letterbox")
        return width, height

    @cached_property
    def offset(self) -> tuple[int, int]:
        """Return the number of black columns left of the scaled image, and of black rows above the scaled image."""
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
        """Map boxes (…, 4) of the image, given as left, top, width, height, to the square, float64."""
        return boxes_in_squares(boxes, self.scale, self.offset)


def joints_in_squares(joints: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Map joints (…, 2) of images to squares, float64.

    ``scale``, ``offset``, (…, 2): :attr:`LetterBox.scale` and :attr:`LetterBox.offset` of each joint's image.
    """
    return (np.asarray(joints, np.float64) + 0.5) * scale + offset - 0.5


def boxes_in_squares(boxes: npt.ArrayLike, scale: Vector, offset: Vector) -> Array:
    """Map boxes (…, 4) of images, given as left, top, width, height, to squares; see :func:`joints_in_squares`."""
    moved = np.array(boxes, np.float64) * np.concatenate([scale, scale], axis=-1)
    moved[..., :2] += offset
    return moved


def areas_in_squares(areas: npt.ArrayLike, scale: Vector) -> Array:
    """Convert areas (…) in images to areas in squares, float64; ``scale``, (…, 2): the scale of each area's image."""
    return np.asarray(areas, np.float64) * np.prod(scale, axis=-1)


def from_cells(places: npt.ArrayLike, stride: float) -> Array:
    """Map heatmap coordinates (…, 2), in cells, to joint coordinates in the network's input, in pixels, float64."""
    return (np.asarray(places, np.float64) + 0.5) * stride - 0.5


def snapped(joints: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round coordinates to multiples of 1/64 of a pixel, float32.

    The error is at most 1/128 of a pixel. Up to 131,072 pixels float32 represents such numbers, their distances to
    whole pixels and their mirror images exactly.
    """
    return (np.rint(np.asarray(joints, np.float64) * GRID) / GRID).astype(np.float32)
