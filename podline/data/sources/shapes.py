"""Draws the images of the sample data set: ten classes of shapes and textures on 32×32 pixels.

Only the shape identifies a class. Place, size, rotation, colours, background and clutter have the same distribution for
all classes, and either figure or background may be brighter, so a single pixel carries no information.

A seed gives the same bytes on any machine: every random number is a hash (:mod:`podline.data.order`), and pixels are
computed with operations that IEEE 754 rounds exactly (+, −, ×, ÷, √, comparisons) and that no library may reorder. So
there are no sums over an axis, no matrix products and no sines.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from podline.data.order import random_bits, random_uniform
from podline.data.sources import class_names

SIDE = 32
Floats = npt.NDArray[np.floating]  # always float32; NumPy's stubs lose that in `array - 0.5`

# Unit vectors at 90°, 210°, 330° to a triangle's corners, and at 90°, 162°, 234°, 306°, 18° to a star's corners.
_TRIANGLE = ((0.0, 1.0), (-0.8660254, -0.5), (0.8660254, -0.5))
_STAR = ((0.0, 1.0), (-0.95105652, 0.30901699), (-0.58778525, -0.80901699), (0.58778525, -0.80901699), (0.95105652, 0.30901699))  # fmt: skip  # noqa: E501
_STAR_INNER = 0.30901699  # distance of a pentagram's lines from its centre, for corners at distance 1


def _radius(u: Floats, v: Floats) -> Floats:
    return np.sqrt(u * u + v * v)


def _triangle(u: Floats, v: Floats) -> Floats:
    sides = [-(a * u + b * v) - 0.5 for a, b in _TRIANGLE]
    return np.maximum(np.maximum(sides[0], sides[1]), sides[2])


def _star(u: Floats, v: Floats) -> Floats:
    """Return the signed distance from a pentagram: a point inside is beyond at most one of the five lines."""
    beyond = np.stack([-(a * u + b * v) - _STAR_INNER for a, b in _STAR])
    return np.sort(beyond, axis=0)[-2]


def _square(u: Floats, v: Floats) -> Floats:
    return np.maximum(np.abs(u), np.abs(v)) - 0.78


def _bar(u: Floats, v: Floats) -> Floats:
    return np.maximum(np.abs(u) - 0.27, np.abs(v) - 0.95)


def _to_nearest(u: Floats) -> Floats:
    """Return the difference from the nearest integer, -0.5 … 0.5."""
    return u - np.rint(u)


def _wave(u: Floats) -> Floats:
    """Return a triangle wave of period 1 between -0.25 and 0.25."""
    return np.abs(_to_nearest(u)) - 0.25


# Class → signed distance of a point from the figure's edge, negative inside; figures roughly fill the unit disc.
_FIGURES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "disc": lambda u, v: _radius(u, v) - 0.85,
    "ring": lambda u, v: np.abs(_radius(u, v) - 0.75) - 0.2,
    "square": _square,
    "triangle": _triangle,
    "cross": lambda u, v: np.minimum(_bar(u, v), _bar(v, u)),
    "star": _star,
    "crescent": lambda u, v: np.maximum(_radius(u, v) - 0.9, 0.75 - _radius(u - 0.4, v)),
    "stripes": lambda u, v: np.maximum(_square(u, v), _wave(u * 1.6) / 1.6),
    "checks": lambda u, v: np.maximum(_square(u, v), _wave(u * 1.3) * _wave(v * 1.3) * 3.0),
    "dots": lambda u, v: np.maximum(_square(u, v), (_radius(_to_nearest(u * 1.5), _to_nearest(v * 1.5)) - 0.3) / 1.5),
}


class _Chance:
    """Random numbers for some images: each kind of number is a function of (seed, split, kind, image)."""

    def __init__(self, seed: int, split: str, images: npt.NDArray[np.int64]) -> None:
        self.seed, self.split, self.images = seed, split, images

    def uniform(self, kind: str, low: float, high: float, *shape: int) -> Floats:
        """Return numbers in [low, high), (images, *shape)."""
        size = int(np.prod(shape)) if shape else 1
        ids = self.images[:, None] * size + np.arange(size)
        drawn = random_uniform(self.seed, f"sample/{self.split}/{kind}", 0, ids)
        return (low + drawn * (high - low)).astype(np.float32).reshape(len(self.images), *shape)

    def bytes(self, kind: str, size: int) -> npt.NDArray[np.uint8]:
        """Return random bytes, (images, size); ``size`` is a multiple of 8."""
        ids = self.images[:, None] * (size // 8) + np.arange(size // 8)
        bits = random_bits(self.seed, f"sample/{self.split}/{kind}", 0, ids)
        return bits.astype("<u8").view(np.uint8).reshape(len(self.images), size)


def draw(seed: int, split: str, images: npt.NDArray[np.int64], labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Draw images of given classes.

    Args:
        seed: seed of the data set.
        split: name of the split; different splits share no image.
        images: positions in the split, (count,).
        labels: class of each image, (count,), an index of :data:`class_names.SAMPLE`.

    Returns:
        uint8, (count, 3, 32, 32): colour planes, as in CIFAR-10.
    """
    chance = _Chance(seed, split, images)
    ground = chance.uniform("ground", 0, 1, 3, 1, 1)
    figure = ground + chance.uniform("contrast", 0.3, 0.7, 3, 1, 1)
    figure = figure - np.floor(figure)  # keeps the distance to the background and the uniform distribution
    picture = ground + _clouds(chance.uniform("clouds", -0.25, 0.25, 3, 5, 5))
    picture = _with_litter(picture, chance)
    cover = _figure_cover(labels, chance)
    picture = picture + (figure - picture) * cover[:, None]
    grain = chance.bytes("grain", 3 * SIDE * SIDE).reshape(picture.shape).astype(np.float32)
    picture = picture * 255 + (grain - 127.5) * 0.16
    return np.floor(np.clip(picture, 0, 255) + 0.5).astype(np.uint8)


def _grid() -> tuple[Floats, Floats]:
    """Return the pixels' centres, from -1 to 1: x as (1, 1, 32), y as (1, 32, 1)."""
    centres = ((2 * np.arange(SIDE) + 1 - SIDE) / SIDE).astype(np.float32)
    return centres[None, None, :], centres[None, :, None]


def _turned(chance: _Chance, kind: str, x: Floats, y: Floats, spread: float) -> tuple[Floats, Floats]:
    """Return coordinates relative to a random centre, rotated by a random angle: float32 (images, 32, 32) each."""
    place = chance.uniform(f"{kind}/place", -spread, spread, 2, 1, 1)
    tangent = chance.uniform(f"{kind}/turn", -1, 1, 1, 1)  # tangent of half the angle: rotates without sine and cosine
    half_turn = np.where(chance.uniform(f"{kind}/half turn", -1, 1, 1, 1) < 0, np.float32(-1), np.float32(1))
    norm = half_turn / (1 + tangent * tangent)
    cosine, sine = (1 - tangent * tangent) * norm, 2 * tangent * norm
    across, down = x - place[:, 0], y - place[:, 1]
    return across * cosine + down * sine, down * cosine - across * sine


def _cover(outside: Floats) -> Floats:
    """Return the share of each pixel that a figure covers, from the signed distance between pixel and edge."""
    return np.clip(0.5 - outside * (SIDE / 2), 0, 1)


def _figure_cover(labels: npt.NDArray[np.uint8], chance: _Chance) -> Floats:
    x, y = _grid()
    across, down = _turned(chance, "figure", x, y, 0.3)
    size = chance.uniform("figure/size", 0.5, 0.9, 1, 1)
    cover = np.empty(across.shape, np.float32)
    for label, name in enumerate(class_names.SAMPLE):
        chosen = np.flatnonzero(labels == label)
        scale = size[chosen]
        cover[chosen] = _cover(_FIGURES[name](across[chosen] / scale, down[chosen] / scale) * scale)
    return cover


def _clouds(knots: Floats) -> Floats:
    """Interpolate random values at 5×5 knots, (images, 3, 5, 5), to smooth patches, (images, 3, 32, 32)."""
    places = np.arange(SIDE) * np.float32(4 / SIDE)
    below = places.astype(np.int64)
    weight = (places - below).astype(np.float32)
    rows = knots[:, :, below] * (1 - weight)[:, None] + knots[:, :, below + 1] * weight[:, None]
    return rows[..., below] * (1 - weight) + rows[..., below + 1] * weight


def _with_litter(picture: Floats, chance: _Chance) -> Floats:
    """Draw small spots and thin lines in random colours, behind the figure."""
    x, y = _grid()
    for number in range(4):
        kind = f"litter {number}"
        across, down = _turned(chance, kind, x, y, 0.95)
        size = chance.uniform(f"{kind}/size", 0.06, 0.2, 1, 1)
        length = size if number < 2 else np.float32(0.7)
        width = size if number < 2 else np.float32(0.05)
        cover = _cover(np.maximum(np.abs(across) - length, np.abs(down) - width))
        colour = chance.uniform(f"{kind}/colour", 0, 1, 3, 1, 1)
        picture = picture + (colour - picture) * cover[:, None]
    return picture
