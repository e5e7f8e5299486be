"""Recolours images: one matrix describes all colour changes of an image."""

from __future__ import annotations

import cv2
import numpy as np

from podline.base.arrays import Floats, Pixels
from podline.input.chance import Chance

# The weights of a grey value: Rec. 601, as in JPEG.
LUMA = np.array([0.299, 0.587, 0.114])
MIDDLE_GREY = 127.5
# From red, green, blue to NTSC's luma and two colour axes; hues are angles between the latter.
_YIQ = np.array([LUMA, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_RGB = np.linalg.inv(_YIQ)


def draw_colours(
    chance: Chance,
    channels: int = 3,
    /,
    *,
    saturation: float = 0.0,
    contrast: float = 0.0,
    brightness: float = 0.0,
    hue: float = 0.0,
) -> Floats:
    """Draw each example's colour matrix (n, channels, channels + 1): a new colour is the matrix times (colour, 1).

    Args:
        chance: the examples' draws.
        channels: 3, or 1 for grey images, which have neither saturation nor hue.
        saturation: differences from a pixel's own grey are multiplied by a factor of 1 ± up to this value.
        contrast: differences from middle grey are multiplied by a factor of 1 ± up to this value.
        brightness: up to this share of the full range is added or subtracted.
        hue: colours are rotated by up to this share of the circle, either way; their luma stays.
    """

    def draw(purpose: str, reach: float) -> Floats:
        return reach * chance.between(purpose, -1, 1)[:, None, None]

    contrasts, offset = 1 + draw("contrast", contrast), 255 * draw("brightness", brightness)
    offset = np.broadcast_to(MIDDLE_GREY * (1 - contrasts) + offset, (len(contrasts), channels, 1))
    if channels == 1:
        return np.concatenate([contrasts, offset], axis=-1)
    mixed = contrasts * saturated(1 + draw("saturation", saturation))
    if hue:
        mixed = mixed @ _turned(2 * np.pi * draw("hue", hue)[:, 0, 0])
    return np.concatenate([mixed, offset], axis=-1)


def saturated(factors: Floats) -> Floats:
    """Return matrices (n, 3, 3) that multiply differences from a pixel's own grey by factors, (n, 1, 1)."""
    return factors * np.eye(3) + (1 - factors) * LUMA


def _turned(angles: Floats) -> Floats:
    """Return matrices (n, 3, 3) that rotate colours about the grey axis by angles in radians, (n,)."""
    turns = np.tile(np.eye(3), (len(angles), 1, 1))
    turns[:, 1, 1] = turns[:, 2, 2] = np.cos(angles)
    turns[:, 2, 1] = np.sin(angles)
    turns[:, 1, 2] = -turns[:, 2, 1]
    return _RGB @ turns @ _YIQ


def recoloured(images: Pixels, matrices: Floats) -> Pixels:
    """Apply colour matrices to images (n, height, width, channels); round, and clip at 0 and 255."""
    changed = np.empty_like(images)
    for image, matrix, target in zip(images, matrices, changed, strict=True):
        cv2.transform(image, matrix, dst=target)
    return changed
