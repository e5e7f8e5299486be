"""Finds near-duplicates: images of two splits that show the same, but compressed, resized, cropped or brightened.

The hashes of all pairs are compared: 45,000 × 5,000 take about a second. Pairs with close hashes must also agree in
their pixels. Near-duplicates are reported, and refused above a share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.cores import usable_cores
from podline.data.images.hashing import Boxes, Hashed, Numbers, Read, agreement, hashes, shown_box
from podline.data.images.image_table import Image, ImageTable
from podline.data.images.settings import PictureSettings
from podline.data.shown import printable
from podline.documents.manifest import APART, split_in_words
from podline.errors import SourceError
from podline.progress import counted
from podline.store.prefetch import in_order

Rows = npt.NDArray[np.integer]
Hashes = npt.NDArray[np.uint64]
_NONE = np.zeros(0, np.int64)

# Limits for a pair: differing bits of 63 in the hashes, least correlation, and largest difference of mean colours.
# docs/how-to/images.md shows the pairs that these limits find.
DISTANCE, CORRELATION, COLOUR = 11, 0.993, 32.0
# Images with less contrast, like sky or night, have noise as hashes.
CONTRAST = 4.0

_HASHED_AT_ONCE = 1_000_000  # images
_PAIRS_AT_ONCE = 500  # pairs whose pixels are compared at once
_MOST_COMPARED = 8  # compared pairs per test image
# Number of hashes that are compared at a time: their differences fit into the processor's cache.
_TEST_BLOCK, _TRAIN_BLOCK = 32, 4096
_distance = attrgetter("distance")
_LET_PASS = 2  # test images: so few prove nothing, even in a small split
_DRAWN = "`podline data check SOURCE --near-duplicates FILE` draws them"


class NearPair(NamedTuple):
    """Two images of different splits that show nearly the same picture.

    Attributes:
        image: the image of the test or validation split.
        repeated: the similar image of the validation or training split.
        distance: number of bits, of 63, in which their hashes differ.
    """

    image: Image
    repeated: Image
    distance: int


class Near(NamedTuple):
    """Pairs of images that show nearly the same picture.

    Attributes:
        test: int64, (n,): numbers of test images, ascending.
        train: int64, (n,): numbers of the similar training images.
        distance: int64, (n,): number of bits in which the hashes differ.
    """

    test: Numbers
    train: Numbers
    distance: Numbers


def boxes_of(images: ImageTable, settings: PictureSettings, count: int) -> Boxes:
    """Return height and width of the picture in each of ``count`` rows, (count, 2); see :func:`shown_box`."""
    boxes, rows = np.zeros((count, 2), np.int16), images.column("row")
    sizes = np.stack([images.column("height"), images.column("width")], axis=1)[rows >= 0]
    different, which = np.unique(sizes, axis=0, return_inverse=True)
    shown = [shown_box(height, width, settings.shape, settings.fitting) for height, width in different.tolist()]
    boxes[rows[rows >= 0]] = np.array(shown, np.int16).reshape(-1, 2)[which]
    return boxes


def near_pairs(
    images: ImageTable, read: Read, settings: PictureSettings, count: int, known: Iterable[Hashed]
) -> tuple[NearPair, ...]:
    """Return the pair of each held-out image with its nearest image in another split, if near; nearest pairs first.

    Args:
        images: all images.
        read: returns the pixels of some rows.
        settings: the form of the images.
        count: number of rows.
        known: known hashes by row, in consecutive arrays.
    """
    boxes = boxes_of(images, settings, count)
    apart = [splits for splits in APART if all(images.kept(split).any() for split in splits)]
    hashed = known if len(apart) < 2 else list(known)
    pairs: list[tuple[int, int, int]] = []
    rows, labels, groups = images.column("row"), images.labels, images.texts("group")
    for test, train in ([np.flatnonzero(images.kept(split)) for split in reversed(splits)] for splits in apart):
        found = near_duplicates(read, boxes, rows[test], rows[train], known=hashed)
        pairs += zip(test[found.test].tolist(), train[found.train].tolist(), found.distance.tolist(), strict=True)

    def image(number: int) -> Image:
        [key] = images.keys([number])
        named = Image(key, labels.at(number), images.split_of(number), groups.at(number))
        return named._replace(row=int(rows[number]))

    return tuple(sorted((NearPair(image(one), image(other), far) for one, other, far in pairs), key=_distance))


def near_duplicates(read: Read, boxes: Boxes, test: Rows, train: Rows, known: Iterable[Hashed] | None = None) -> Near:
    """Return the nearest pair of each test image that has one; the pairs hold places in ``test`` and ``train``.

    Images with almost no contrast are never in a pair.

    Args:
        read: see :func:`podline.data.images.hashing.hashes`.
        boxes: see :func:`podline.data.images.hashing.hashes`.
        test: (m,): rows of test images.
        train: (n,): rows of training images.
        known: known hashes by row, in consecutive arrays, or None.
    """
    hashed, clear = np.zeros(len(boxes), np.uint64), np.zeros(len(boxes), np.bool_)
    first = 0
    for some in _hashed(read, boxes) if known is None else known:
        mine = slice(first, first := first + len(some))
        hashed[mine], clear[mine] = some["hash"], some["contrast"] >= CONTRAST
    of_test, of_train = (hashed[rows[clear[rows]]] for rows in (test, train))
    del hashed
    found = close(of_test, of_train)
    ones, others = (np.flatnonzero(clear[rows]) for rows in (test, train))
    pairs = Near(ones[found.test], others[found.train], found.distance)
    agree = [
        _agree(read, boxes, test[pairs.test[first:last]], train[pairs.train[first:last]])
        for first, last in pairwise([*range(0, len(pairs.test), _PAIRS_AT_ONCE), len(pairs.test)])
    ]
    agreeing = np.flatnonzero(np.concatenate(agree)) if agree else _NONE
    _, firsts = np.unique(pairs.test[agreeing], return_index=True)  # a test image's pairs are sorted by distance
    return Near(*(column[agreeing[firsts]] for column in pairs))


def _hashed(read: Read, boxes: Boxes) -> Iterator[Hashed]:
    for first in range(0, len(boxes), _HASHED_AT_ONCE):
        yield hashes(lambda rows, first=first: read(first + rows), boxes[first : first + _HASHED_AT_ONCE])


def _agree(read: Read, boxes: Boxes, ones: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    correlation, colour = agreement(read, boxes, ones.astype(np.int64), others.astype(np.int64))
    return (correlation >= CORRELATION) & (colour <= COLOUR)


def close(test: Hashes, train: Hashes, distance: int = DISTANCE) -> Near:
    """Return pairs of hashes, (m,) and (n,), that differ in few bits.

    A test hash is paired with at most its 8 nearest training hashes, nearest first.
    """
    find = partial(_close, test, train, distance)
    blocks = range(0, len(test), _TEST_BLOCK)
    found = counted(in_order(find, blocks, usable_cores()), len(blocks), "parts compared for near-duplicates")
    return Near(*map(np.concatenate, zip((_NONE, _NONE, _NONE), *found, strict=True)))


def _close(test: Hashes, train: Hashes, distance: int, first: int) -> Near:
    """Return the pairs of some test hashes, numbered from ``first``."""
    some = test[first : first + _TEST_BLOCK, np.newaxis]
    limits, pairs = np.full(len(some), distance), [(_NONE, _NONE)] * len(some)
    for start in range(0, len(train), _TRAIN_BLOCK):
        bits = np.bitwise_count(some ^ train[start : start + _TRAIN_BLOCK])
        for row in np.flatnonzero(bits.min(axis=1) <= limits).tolist():
            others = np.flatnonzero(bits[row] <= limits[row])
            numbers, far = map(np.concatenate, zip(pairs[row], (start + others, bits[row, others]), strict=True))
            nearest = np.argsort(far, kind="stable")[:_MOST_COMPARED]
            pairs[row] = numbers[nearest], far[nearest]
            if len(nearest) == _MOST_COMPARED:  # among equal distances the first win
                limits[row] = far[nearest[-1]] - 1
    tests = np.repeat(first + np.arange(len(some)), [len(numbers) for numbers, _ in pairs])
    return Near(tests, *map(np.concatenate, zip(*pairs, strict=True)))


def near_counts(pairs: Sequence[NearPair]) -> dict[str, int]:
    """Return the number of images of a split that nearly repeat one of another split, by description."""
    return {
        f"{split} images that nearly repeat a {split_in_words(other)} image": len(some)
        for (split, other), some in _by_splits(pairs)
    }


def near_lines(pairs: Sequence[NearPair], sizes: Mapping[str, int]) -> list[str]:
    """Return one line per pair of splits with the number of near-duplicates."""
    return [f"{_counted(some, sizes)} ({_first(some)}); they are converted; {_DRAWN}" for _, some in _by_splits(pairs)]


def refuse_near(pairs: Sequence[NearPair], sizes: Mapping[str, int], allowed: float) -> None:
    """Check that few images of each split have a near-duplicate; two are always allowed.

    Raises:
        SourceError: more than the share ``allowed``, 0 … 1, have one.
    """
    for (split, _), some in _by_splits(pairs):
        if len(some) > max(allowed * sizes[split], _LET_PASS):
            share = len(some) / sizes[split]
            raise SourceError(
                f"{_counted(some, sizes)}, {share:.1%} vs {allowed:.1%} at most ({_first(some)}): the score would not "
                "hold for new images; give a column of groups (conversion.group_column), separate splits, or "
                f"--set conversion.near_share={math.ceil(100 * share) / 100:g}; {_DRAWN}"
            )


def _by_splits(pairs: Sequence[NearPair]) -> Iterator[tuple[tuple[str, str], list[NearPair]]]:
    """Yield each pair of splits with its near-duplicates."""
    for other, split in APART:
        if some := [pair for pair in pairs if (pair.image.split, pair.repeated.split) == (split, other)]:
            yield (split, other), some


def _counted(pairs: Sequence[NearPair], sizes: Mapping[str, int]) -> str:
    split, other = pairs[0].image.split, pairs[0].repeated.split
    return f"{len(pairs):,} of the {sizes[split]:,} {split} images nearly repeat a {split_in_words(other)} image"


def _first(pairs: Sequence[NearPair]) -> str:
    return f"{printable(pairs[0].image.key)} and {printable(pairs[0].repeated.key)}, for one"
