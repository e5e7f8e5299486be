"""Compute perceptual hashes of images, and compare the pixels of pairs with similar hashes.

The hash has the signs of an image's low frequencies. The grey values are averaged over areas to 32 × 32 and
cosine-transformed. Each of the lowest 8 × 8 coefficients, except the constant one, is compared with their median.
(C. Zauner, Implementation and Benchmarking of Perceptual Image Hash Functions, 2010.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.base.arrays import Pixels
from podline.data.fitting import middle

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Boxes = npt.NDArray[np.integer]

Read = Callable[[Numbers], Pixels]
"""A function from row numbers to images, uint8 (n, side, side, channels), with 1 or 3 channels."""

BITS = 63
HASHED = np.dtype([("hash", np.uint64), ("contrast", np.float32)])
"""The dtype of an image's hash and the standard deviation of its grey values."""
Hashed = npt.NDArray[np.void]
"""An array of dtype :data:`HASHED`."""

_SIDE = 32
_LOW, _LOOKED_AT = 8, 16  # frequencies per axis in the hash, and in the comparison of pixels
_SMOOTH, _MOST_MOVED = 24, 1.3  # image side in the comparison, and the largest shift for alignment, in pixels
_CHUNK_BYTES = 1_000_000


def hashes(read: Read, boxes: Boxes) -> Hashed:
    """Return the hash and the contrast of each image.

    Args:
        read: returns the images of some rows; called for about a megabyte at a time.
        boxes: (n, 2): height and width in pixels of the picture in the centre of each image. The border around it is
            ignored, since equal black borders would make all pictures similar.

    Returns:
        An array (n,) of dtype :data:`HASHED`; zeros if a box is less than 8 pixels high or wide.
    """
    return np.fromiter(map(_hash_of, _shown(read, boxes, np.arange(len(boxes)))), HASHED, len(boxes))


def hash_of(image: Pixels, height: int, width: int) -> tuple[int, float]:
    """Return the hash and the contrast of one image (height, width, channels); see :func:`hashes`."""
    return _hash_of(middle(image, height, width))


def _hash_of(shown: Any) -> tuple[int, float]:
    if min(shown.shape[:2]) < _LOW:
        return 0, 0.0
    low, grey = _cosines(_LOW, _SIDE), _grey(shown).astype(np.float32)
    waves = (low @ grey @ low.T).reshape(-1)[1:]
    bits = np.packbits(waves > np.partition(waves, BITS // 2)[BITS // 2], bitorder="little")
    return int.from_bytes(bits.tobytes(), "little"), cv2.meanStdDev(grey)[1].item()


def agreement(
    read: Read, boxes: Boxes, ones: Numbers, others: Numbers
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    """Measure how similar the images of each pair are.

    Args:
        read: see :func:`hashes`.
        boxes: see :func:`hashes`.
        ones: int64 (n,), n ≥ 1: row of the first image of each pair.
        others: int64 (n,): row of the second image of each pair.

    Returns:
        Two arrays (n,). First, float64, the correlation of the grey values without fine detail, 0 … 1, after alignment
        by a shift and stretch of a few hundredths of the side; 0 if it is negative. Second, float32, the largest
        difference of the channel means, 0 … 255.
    """
    rows, places = np.unique(np.concatenate([ones, others]), return_inverse=True)
    # Only the lowest 16 frequencies count, higher ones less, as after a blur.
    less = np.exp(-0.0042 * np.arange(_LOOKED_AT) ** 2).astype(np.float32)
    smoothing = (_cosines(_LOOKED_AT, _SMOOTH).T * less) @ _cosines(_LOOKED_AT, _SIDE) * np.sqrt(_SMOOTH / _SIDE)
    smooth, means = np.empty((len(rows), _SMOOTH, _SMOOTH), np.float32), np.zeros((len(rows), 3), np.float32)
    for at, shown in enumerate(_shown(read, boxes, rows)):
        smooth[at], means[at] = smoothing @ _grey(shown) @ smoothing.T, cv2.mean(shown)[:3]
    first, second = np.split(places, 2)
    return _aligned(smooth[first], smooth[second]), np.abs(means[first] - means[second]).max(axis=1, initial=0.0)


def _aligned(first: Floats, second: Floats) -> npt.NDArray[np.float64]:
    """Return the correlation of pairs after the best first-order alignment: a regression on image and gradients.

    A shift or a stretch adds multiples of the gradients. (B. D. Lucas, T. Kanade, An Iterative Image Registration
    Technique with an Application to Stereo Vision, 1981.)
    """
    inside, place = (slice(None), slice(1, -1), slice(1, -1)), np.linspace(-1, 1, _SMOOTH, dtype=np.float32)
    down, across = (np.asarray(slopes) for slopes in np.gradient((first + second) / 2, axis=(1, 2)))
    columns = (first, down, down * place[:, np.newaxis], across, across * place)
    known = np.stack([column[inside].reshape(len(first), -1) for column in columns], axis=1)
    known -= known.mean(axis=2, keepdims=True)
    wanted = second[inside].reshape(len(first), 1, -1)
    wanted = wanted - wanted.mean(axis=2, keepdims=True)
    squares, total = known @ known.transpose(0, 2, 1), np.square(wanted).sum(axis=(1, 2))
    least = 1e-6 * (1 + np.trace(squares, axis1=1, axis2=2))  # regularization: stripes have a zero gradient
    steady = squares + least[:, np.newaxis, np.newaxis] * np.eye(len(columns))
    factors = np.linalg.solve(steady, known @ wanted.transpose(0, 2, 1))
    factors[:, 1:] = np.clip(factors[:, 1:], -_MOST_MOVED, _MOST_MOVED)
    rest = np.square(wanted - factors.transpose(0, 2, 1) @ known).sum(axis=(1, 2))
    return np.where(factors[:, 0, 0] > 0, np.sqrt(np.maximum(1 - rest / np.maximum(total, 1e-6), 0)), 0)


def _shown(read: Read, boxes: Boxes, rows: Numbers) -> Iterator[Any]:
    """Yield the picture in each image without its border; read about a megabyte at a time."""
    step = max(1, _CHUNK_BYTES // (3 * int(boxes.max(initial=1)) ** 2))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        for image, (height, width) in zip(read(some), boxes[some].tolist(), strict=True):
            yield middle(image, height, width)


def _grey(shown: Any) -> Any:
    one = cv2.cvtColor(shown, cv2.COLOR_RGB2GRAY) if shown.shape[2] == 3 else shown[..., 0]
    return cv2.resize(one, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)


@functools.cache
def _cosines(count: int, size: int) -> Floats:
    """Return the lowest ``count`` basis functions of the cosine transform, float32 (count, size)."""
    number, pixel = np.arange(count)[:, np.newaxis], np.arange(size)
    waves = np.cos(np.pi * number * (2 * pixel + 1) / (2 * size)) * np.where(number, np.sqrt(2), 1)
    return (waves / np.sqrt(size)).astype(np.float32)
