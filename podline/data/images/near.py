"""Finds test images that a training image shows too: compressed, resized, cropped or brightened.

Pairs whose hashes are close are found without comparing every pair: of two hashes that differ in at most 11 bits, one
of three parts of 21 bits differs in at most 3. (M. Norouzi, A. Punjani, D. J. Fleet, Fast Search in Hamming Space with
Multi-Index Hashing, 2012.) Each pair then has to agree in its pixels too.
"""

from __future__ import annotations

import functools
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.hashing import BITS, Numbers, Read, agreement

Hashes = npt.NDArray[np.uint64]

# Bits of 63 in which the hashes of a pair may differ, what its correlation is at least, and how far apart its mean
# colours are at most: benchmarks/near_duplicates.py measures what that finds.
DISTANCE, CORRELATION, COLOUR = 11, 0.993, 32.0
# Images of less contrast are sky or night: their hashes are noise.
CONTRAST = 4.0

_PARTS, _PART_BITS = 3, BITS // 3
_AT_ONCE, _PAIRS_AT_ONCE = 256, 500  # test images, and pairs that are looked at
_MOST_FOUND = 2_000  # training images that share a part with a test image
_MOST_LOOKED_AT = 8  # pairs of a test image


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
    """Pairs of hashes that differ in few bits.

    Args:
        test: (m,).
        train: (n,).
        distance: bits in which they may differ.

    Returns:
        For each test hash its 8 nearest training hashes at most, nearest first. Where more than 2,000 training hashes
        share a part with one, those that do in fewer bits are compared.
    """
    indices = [_Index(_part(train, number)) for number in range(_PARTS)]
    found = [_close(test, train, indices, first, distance) for first in range(0, len(test), _AT_ONCE)]
    return Near(*(np.concatenate(column) for column in zip(*found, strict=True))) if found else Near(*[_NONE] * 3)


_NONE = np.zeros(0, np.int64)


class _Index:
    """Training hashes by one part."""

    def __init__(self, parts: Numbers) -> None:
        self.order = np.argsort(parts, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=1 << _PART_BITS))])

    def pairs(self, parts: Numbers, radius: int) -> tuple[Numbers, Numbers]:
        """Queries, and the training hashes whose part differs in few bits."""
        wanted = parts[:, np.newaxis] ^ _masks(radius)
        starts = self.starts[wanted]
        counts = self.starts[wanted + 1] - starts
        before = np.cumsum(counts, axis=1) - counts
        counts = np.clip(_MOST_FOUND - before, 0, counts)
        total = counts.ravel()
        ends = np.cumsum(total)
        places = np.arange(ends[-1]) + np.repeat(starts.ravel() - ends + total, total)
        return np.repeat(np.arange(len(parts)), counts.sum(axis=1)), self.order[places]


def _close(test: Hashes, train: Hashes, indices: list[_Index], first: int, distance: int) -> Near:
    """Some test hashes' pairs."""
    some = test[first : first + _AT_ONCE]
    found = [index.pairs(_part(some, number), distance // _PARTS) for number, index in enumerate(indices)]
    pairs = np.concatenate([query * len(train) + other for query, other in found])
    far = np.bitwise_count(some[pairs // len(train)] ^ train[pairs % len(train)])
    near, where = np.unique(pairs[far <= distance], return_index=True)
    query, other, far = near // len(train), near % len(train), far[far <= distance][where].astype(np.int64)
    order = np.lexsort((other, far, query))
    rank = np.arange(len(order)) - np.searchsorted(query, query)  # queries are in order
    order = order[rank < _MOST_LOOKED_AT]
    return Near(query[order] + first, other[order], far[order])


def _part(hashes: Hashes, number: int) -> Numbers:
    return ((hashes >> np.uint64(number * _PART_BITS)) & np.uint64((1 << _PART_BITS) - 1)).astype(np.int64)


@functools.cache
def _masks(radius: int) -> Numbers:
    """Every difference of a part in at most so many bits, small ones first."""
    chosen = (bits for count in range(radius + 1) for bits in combinations(range(_PART_BITS), count))
    return np.array([sum(1 << bit for bit in bits) for bits in chosen], np.int64)
