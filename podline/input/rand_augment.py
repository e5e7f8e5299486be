"""RandAugment: applies a few random operations from one list, with a common magnitude, to each image.

Cubuk, Zoph, Shlens, Le: "RandAugment: Practical automated data augmentation with a reduced search space", 2020. The
list and its ranges are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Pixels
from podline.input.chance import Chance
from podline.input.colours import saturated

Operation = Callable[[Pixels, float, Pixels], Pixels]

MOST = 30
"""The largest magnitude."""
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13


def rand_augmented(images: Pixels, number: int, magnitude: int, fill: Pixels, chance: Chance) -> Pixels:
    """Apply ``number`` random operations to a copy of each image, uint8 (n, height, width, channels).

    Images have 1 or 3 channels. Each operation and its sign is drawn separately. The magnitude is 0 … :data:`MOST`.
    ``fill`` is the colour of areas from outside an image, uint8 (channels,).
    """
    names, made = list(OPERATIONS), np.empty_like(images)
    turns = [
        (chance.below(f"operation {turn}", len(names)), 2 * chance.below(f"sign {turn}", 2) - 1)
        for turn in range(number)
    ]
    for place, image in enumerate(images):
        changed = image
        for operations, signs in turns:
            operation = OPERATIONS[names[operations[place]]]
            changed = operation(changed, float(signs[place] * magnitude / MOST), fill).reshape(image.shape)
        made[place] = changed
    return made


def _mapped(entries: Callable[[float], tuple[float, float, float, float, float, float]]) -> Operation:
    """Return an operation that maps images affinely.

    ``entries``: signed strength → the six entries of the matrix (2, 3), row by row, that maps a position in the new
    image to one in the given image. Positions are relative to the centre; shifts are shares of width and height.
    """

    def apply(image: Pixels, strength: float, fill: Pixels) -> Pixels:
        height, width = image.shape[:2]
        affine = np.array(entries(strength), np.float64).reshape(2, 3)
        centre = np.array([width - 1, height - 1]) / 2
        affine[:, 2] = affine[:, 2] * (width, height) + centre - affine[:, :2] @ centre
        flags, border = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, [float(value) for value in fill]
        return cv2.warpAffine(image, affine, (width, height), flags=flags, borderValue=border).astype(np.uint8)

    return apply


def _turned(strength: float) -> tuple[float, float, float, float, float, float]:
    angle = np.radians(30 * strength)
    return np.cos(angle), -np.sin(angle), 0, np.sin(angle), np.cos(angle), 0


def _blended(image: Pixels, other: npt.NDArray[np.number] | float, strength: float) -> Pixels:
    """Multiply an image's difference from ``other`` by 1 + 0.9 · strength: a negative strength moves it closer."""
    factor = 1 + 0.9 * strength
    return np.clip(np.rint(other + factor * (image - np.float32(1) * other)), 0, 255).astype(np.uint8)


def _saturation(image: Pixels, strength: float, _fill: Pixels) -> Pixels:
    if image.shape[-1] == 1:
        return image
    return cv2.transform(image, saturated(np.full((1, 1, 1), 1 + 0.9 * strength))[0]).astype(np.uint8)


def _sharpness(image: Pixels, strength: float, _fill: Pixels) -> Pixels:
    return _blended(image, cv2.filter2D(image, -1, _SMOOTH).reshape(image.shape), strength)


def _posterize(image: Pixels, strength: float, _fill: Pixels) -> Pixels:
    """Keep the upper bits, at least 4."""
    return image & np.uint8(256 - (1 << round(4 * abs(strength))))


def _solarize(image: Pixels, strength: float, _fill: Pixels) -> Pixels:
    """Invert bright pixels."""
    return np.where(image >= 255 * (1 - abs(strength)), 255 - image, image)


def _autocontrast(image: Pixels, _strength: float, _fill: Pixels) -> Pixels:
    """Stretch each channel over the full range."""
    low, high = image.min(axis=(0, 1)).astype(np.float32), image.max(axis=(0, 1)).astype(np.float32)
    scale = np.where(high > low, 255 / np.maximum(high - low, 1), 1)
    return np.rint((image - np.where(high > low, low, 0)) * scale).astype(np.uint8)


def _equalize(image: Pixels, _strength: float, _fill: Pixels) -> Pixels:
    return np.stack([cv2.equalizeHist(channel) for channel in np.moveaxis(image, -1, 0)], axis=-1)


OPERATIONS: dict[str, Operation] = {
    "identity": lambda image, _strength, _fill: image,
    "shear x": _mapped(lambda strength: (1, 0.3 * strength, 0, 0, 1, 0)),
    "shear y": _mapped(lambda strength: (1, 0, 0, 0.3 * strength, 1, 0)),
    "translate x": _mapped(lambda strength: (1, 0, 0.45 * strength, 0, 1, 0)),
    "translate y": _mapped(lambda strength: (1, 0, 0, 0, 1, 0.45 * strength)),
    "rotate": _mapped(_turned),
    "brightness": lambda image, strength, _fill: _blended(image, 0.0, strength),
    "saturation": _saturation,
    "contrast": lambda image, strength, _fill: _blended(image, float(image.mean()), strength),
    "sharpness": _sharpness,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
}
"""A function of an image, a signed strength (-1 … 1) and the colour of the outside; some ignore the sign."""
