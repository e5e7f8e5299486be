"""Finds test images that a training image shows too: compressed, resized, cropped or brightened.

The hashes of all pairs are compared: 45,000 × 5,000 take about a second. Pairs whose hashes are close have to agree in
their pixels too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.hashing import Numbers, Read, agreement

Hashes = npt.NDArray[np.uint64]
_NONE = np.zeros(0, np.int64)

# Bits of 63 in which the hashes of a pair may differ, what its correlation is at least, and how far apart its mean
# colours are at most: benchmarks/near_duplicates.py measures what that finds.
DISTANCE, CORRELATION, COLOUR = 11, 0.993, 32.0
# Images of less contrast are sky or night: their hashes are noise.
CONTRAST = 4.0

_PAIRS_AT_ONCE = 500  # whose pixels are compared
_MOST_COMPARED = 8  # pairs of a test image
# Hashes that are compared at a time: their differences stay in the processor's cache.
_TEST_BLOCK, _TRAIN_BLOCK = 32, 4096


class Near(NamedTuple):
    """Pairs of images that show nearly the same: of each test image that has one, the nearest.

    Attributes:
        test: int64, (n,): numbers of test images, ascending.
        train: int64, (n,): of training images.
        distance: int64, (n,): bits in which the hashes differ.
    """

    test: Numbers
    train: Numbers
    distance: Numbers


def near_duplicates(read: Read, boxes: Numbers, hashed: npt.NDArray[np.void], test: Numbers, train: Numbers) -> Near:
    """Test images with a training image that shows nearly the same.

    Args:
        read: see :func:`podline.data.images.hashing.hashes`.
        boxes: likewise.
        hashed: what that function returns of them.
        test: (m,): rows of test images.
        train: likewise.

    Returns:
        Pairs, by places in ``test`` and ``train``. Images of next to no contrast are in none.
    """
    ones, others = (np.flatnonzero(hashed["contrast"][rows] >= CONTRAST) for rows in (test, train))
    found = close(hashed["hash"][test[ones]], hashed["hash"][train[others]])
    pairs = Near(ones[found.test], others[found.train], found.distance)
    agree = [
        _agree(read, boxes, test[pairs.test[first:last]], train[pairs.train[first:last]])
        for first, last in pairwise([*range(0, len(pairs.test), _PAIRS_AT_ONCE), len(pairs.test)])
    ]
    kept = np.flatnonzero(np.concatenate(agree)) if agree else _NONE
    _, firsts = np.unique(pairs.test[kept], return_index=True)  # pairs of a test image come nearest first
    return Near(*(column[kept[firsts]] for column in pairs))


def _agree(read: Read, boxes: Numbers, ones: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
    correlation, colour = agreement(read, boxes, ones, others)
    return (correlation >= CORRELATION) & (colour <= COLOUR)


def close(test: Hashes, train: Hashes, distance: int = DISTANCE) -> Near:
    """Find pairs of hashes that differ in few bits.

    Args:
        test: (m,).
        train: (n,).
        distance: bits in which they may differ.

    Returns:
        For each test hash its 8 nearest training hashes at most, nearest first.
    """
    bits = np.empty((_TEST_BLOCK, len(train)), np.uint8)
    found = [(_NONE, _NONE, _NONE)]
    for first in range(0, len(test), _TEST_BLOCK):
        some = test[first : first + _TEST_BLOCK, np.newaxis]
        near = np.zeros(len(some), np.bool_)
        for start in range(0, len(train), _TRAIN_BLOCK):
            block = bits[: len(some), start : start + _TRAIN_BLOCK]
            np.bitwise_count(some ^ train[start : start + _TRAIN_BLOCK], out=block)
            near |= block.min(axis=1) <= distance
        for row in np.flatnonzero(near):
            others = np.flatnonzero(bits[row] <= distance)
            others = others[np.argsort(bits[row, others], kind="stable")][:_MOST_COMPARED]
            found.append((np.full(len(others), first + row), others, bits[row, others].astype(np.int64)))
    return Near(*(np.concatenate(column) for column in zip(*found, strict=True)))
