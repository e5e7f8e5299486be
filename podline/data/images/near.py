"""Finds test images that a training image shows too: compressed, resized, cropped or brightened.

The hashes of all pairs are compared: 45,000 × 5,000 take about a second. Pairs whose hashes are close have to agree in
their pixels too. They are told, and refused above a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.deciding import Image, kept
from podline.data.images.hashing import Hashed, Numbers, Read, agreement, hashes, shown_box
from podline.data.images.items import TEST, TRAIN
from podline.data.images.settings import ImagesSettings
from podline.data.shown import printable
from podline.errors import SourceError

Hashes = npt.NDArray[np.uint64]
_NONE = np.zeros(0, np.int64)

# Bits of 63 in which the hashes of a pair may differ, what its correlation is at least, and how far apart its mean
# colours are at most: docs/how-to/images.md has what that finds.
DISTANCE, CORRELATION, COLOUR = 11, 0.993, 32.0
# Images of less contrast are sky or night: their hashes are noise.
CONTRAST = 4.0

_PAIRS_AT_ONCE = 500  # whose pixels are compared
_MOST_COMPARED = 8  # pairs of a test image
# Hashes that are compared at a time: their differences stay in the processor's cache.
_TEST_BLOCK, _TRAIN_BLOCK = 32, 4096
_LET_PASS = 2  # test images: they prove nothing, in however small a split
_DRAWN = "`podline data check SOURCE --near-duplicates FILE` draws them"


class NearPair(NamedTuple):
    """Two images that show nearly the same, and in how many bits of 63 their hashes differ."""

    test: Image
    train: Image
    distance: int


class Near(NamedTuple):
    """Pairs of images that show nearly the same.

    Attributes:
        test: int64, (n,): numbers of test images, ascending.
        train: int64, (n,): of training images.
        distance: int64, (n,): bits in which the hashes differ.
    """

    test: Numbers
    train: Numbers
    distance: Numbers


def near_pairs(
    images: Sequence[Image], read: Read, settings: ImagesSettings, known: Hashed | None = None
) -> tuple[NearPair, ...]:
    """Return each test image with the nearest training image, where one is near; the nearest pairs first.

    Args:
        images: all of them.
        read: gives the pixels of some rows.
        settings: what the images became.
        known: their hashes by row, where the decoder made these.
    """
    boxes = np.zeros((1 + max(image.row for image in images), 2), np.int64)
    for image in images:
        if image.row >= 0:
            boxes[image.row] = shown_box(image.height, image.width, settings.shape, settings.fit)
    test, train = kept(images, TEST), kept(images, TRAIN)
    rows = (np.array([image.row for image in some], np.int64) for some in (test, train))
    found = zip(*(column.tolist() for column in near_duplicates(read, boxes, *rows, known=known)), strict=True)
    pairs = (NearPair(test[one], train[other], distance) for one, other, distance in found)
    return tuple(sorted(pairs, key=lambda pair: pair.distance))


def near_duplicates(read: Read, boxes: Numbers, test: Numbers, train: Numbers, known: Hashed | None = None) -> Near:
    """Return the nearest pair of each test image that has one, by places in ``test`` and ``train``.

    Images of next to no contrast are in none.

    Args:
        read: see :func:`podline.data.images.hashing.hashes`.
        boxes: see there.
        test: (m,): rows of test images.
        train: (n,): rows of training images.
        known: the hashes by row, if they are.
    """
    hashed = hashes(read, boxes) if known is None else known
    ones, others = (np.flatnonzero(hashed["contrast"][rows] >= CONTRAST) for rows in (test, train))
    found = close(hashed["hash"][test[ones]], hashed["hash"][train[others]])
    pairs = Near(ones[found.test], others[found.train], found.distance)
    agree = [
        _agree(read, boxes, test[pairs.test[first:last]], train[pairs.train[first:last]])
        for first, last in pairwise([*range(0, len(pairs.test), _PAIRS_AT_ONCE), len(pairs.test)])
    ]
    agreeing = np.flatnonzero(np.concatenate(agree)) if agree else _NONE
    _, firsts = np.unique(pairs.test[agreeing], return_index=True)  # pairs of a test image come nearest first
    return Near(*(column[agreeing[firsts]] for column in pairs))


def _agree(read: Read, boxes: Numbers, ones: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
    correlation, colour = agreement(read, boxes, ones, others)
    return (correlation >= CORRELATION) & (colour <= COLOUR)


def close(test: Hashes, train: Hashes, distance: int = DISTANCE) -> Near:
    """Return pairs of hashes, (m,) and (n,), that differ in few bits.

    Of each test hash these are its 8 nearest training hashes at most, nearest first.
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


def near_lines(pairs: Sequence[NearPair], tested: int) -> list[str]:
    """Return how many of the test images have a near-duplicate, in words."""
    return [f"{_counted(pairs, tested)} ({_first(pairs)}); they are converted; {_DRAWN}"] if pairs else []


def refuse_near(pairs: Sequence[NearPair], tested: int, allowed: float) -> None:
    """Check that few of the test images have a near-duplicate; two are let pass.

    Raises:
        SourceError: more than a share, 0 … 1, have one.
    """
    if len(pairs) <= max(allowed * tested, _LET_PASS):
        return
    share = len(pairs) / tested
    raise SourceError(
        f"{_counted(pairs, tested)}, {share:.1%} vs {allowed:.1%} at most ({_first(pairs)}): the evaluation would lie "
        "inside the training set; give a column of groups (conversion.group_column), splits that are apart, or "
        f"--set conversion.near_share={math.ceil(100 * share) / 100:g}; {_DRAWN}"
    )


def _counted(pairs: Sequence[NearPair], tested: int) -> str:
    return f"{len(pairs):,} of the {tested:,} test images nearly repeat a training image"


def _first(pairs: Sequence[NearPair]) -> str:
    return f"{printable(pairs[0].test.key)} and {printable(pairs[0].train.key)}, for one"
