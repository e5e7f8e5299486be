"""Find near-duplicates: images of two splits that show the same, apart from compression, size, crop or brightness.

Candidates are pairs with similar hashes, found by hash tables; their pixels must also agree. Near-duplicates are
reported, and refused above a share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from podline.base.cores import usable_cores
from podline.base.errors import SourceError
from podline.base.progress import counted
from podline.data.fitting import shown_size
from podline.data.images.hashing import BITS, HASHED, Boxes, Hashed, Numbers, Read, agreement
from podline.data.images.image_table import ImageTable, SourceImage
from podline.data.images.settings import PictureSettings
from podline.data.shown import printable
from podline.documents.manifest import APART, NEARLY_REPEAT, split_in_words
from podline.store.prefetch import in_order

T = TypeVar("T")
Hashes = npt.NDArray[np.uint64]
_NONE = np.zeros(0, np.int64)

# Limits for a pair: differing bits of 63 in the hashes, least correlation, largest difference of mean colours.
# docs/how-to/images.md shows the pairs that these limits find.
DISTANCE, CORRELATION, COLOUR = 11, 0.993, 32.0
# Hashes of images with less contrast, such as sky or night, are noise.
CONTRAST = 4.0

_PAIRS_AT_ONCE = 500  # pairs whose pixels are compared at once
_MOST_COMPARED = 8  # largest number of compared pairs per test image
# Number of hashes compared at a time, so that their differences fit into the processor's cache.
_TEST_BLOCK, _TRAIN_BLOCK, _BAND_BLOCK = 32, 4096, 128
_BANDS = 4
_FEW_PAIRS = 20_000_000  # up to this number, comparing all pairs is faster than making tables
_MOST_CANDIDATES = 8  # a candidate from a table takes as long as this many comparisons in a block
_distance = attrgetter("distance")
_LET_PASS = 2  # test images with a near-duplicate that are always allowed, even in a small split
_DRAWN = "`podline data check SOURCE --near-duplicates FILE` shows them"


class NearPair(NamedTuple):
    """Two images of different splits that show nearly the same picture.

    Attributes:
        image: the image of the test or validation split.
        repeated: the similar image of the validation or training split.
        distance: number of bits, of 63, in which their hashes differ.
    """

    image: SourceImage
    repeated: SourceImage
    distance: int


class Near(NamedTuple):
    """Pairs of near-duplicates, as int64 arrays (n,).

    Attributes:
        test: numbers or indices of test images, ascending.
        train: numbers or indices of the similar training images.
        distance: number of bits in which the hashes differ.
    """

    test: Numbers
    train: Numbers
    distance: Numbers

    def at(self, places: Numbers) -> Self:
        """Return the pairs at some indices."""
        return self._make(column[places] for column in self)


_NOTHING = Near(_NONE, _NONE, _NONE)


def near_pairs(images: ImageTable, read: Read, settings: PictureSettings) -> tuple[NearPair, ...]:
    """Return near-duplicates in different splits: for each pair of splits, each held-out image with the nearest image.

    They are ordered by distance; held-out images without a near-duplicate are omitted.

    Args:
        images: all images.
        read: returns the pixels of some rows.
        settings: the conversion settings.
    """
    boxes, hashed, found = _boxes_of(images, settings), np.empty(len(images), HASHED), list[NearPair]()
    rows, pixels = images.column("row"), images.column("pixels")
    for name in HASHED.names or ():
        hashed[name] = images.column(name)

    def image(number: int) -> SourceImage:
        return SourceImage(
            images.text("key", number), images.labels.at(number), images.split_of(number), int(rows[number])
        )

    for splits in (splits for splits in APART if all(images.kept(split).any() for split in splits)):
        train, test = (np.flatnonzero(images.kept(split)) for split in splits)
        train = np.sort(train[np.unique(pixels[train], return_index=True)[1]])  # one of several equal images
        pairs = nearest(lambda numbers: read(rows[numbers]), boxes, hashed, test, train)
        for one, other, distance in zip(*(column.tolist() for column in pairs), strict=True):
            found.append(NearPair(image(one), image(other), distance))
    return tuple(sorted(found, key=_distance))


def _boxes_of(images: ImageTable, settings: PictureSettings) -> Boxes:
    """Return height and width of the picture in each record, int16 (n, 2); zeros for an image without pixels."""
    sizes = np.stack([images.column("height"), images.column("width")], axis=1)
    different, which = np.unique(sizes, axis=0, return_inverse=True)
    shown = [
        shown_size(height, width, settings.shape, settings.fitting) if height and width else (0, 0)
        for height, width in different.tolist()
    ]
    return np.array(shown, np.int16).reshape(-1, 2)[which]


def nearest(read: Read, boxes: Boxes, hashed: Hashed, test: Numbers, train: Numbers) -> Near:
    """Return, for each test image with a near-duplicate among the training images, the pair with the nearest one.

    Only the pixels of the 8 training images with the nearest hashes are compared. Images with little contrast are in no
    pair.

    Args:
        read: see :func:`podline.data.images.hashing.hashes`.
        boxes: see :func:`podline.data.images.hashing.hashes`.
        hashed: the hash of each image; see :func:`podline.data.images.hashing.hashes`.
        test: int64 (m,): numbers of test images, ascending.
        train: int64 (n,): numbers of training images, ascending.
    """
    test, train = (numbers[hashed["contrast"][numbers] >= CONTRAST] for numbers in (test, train))
    found = close(hashed["hash"][test], hashed["hash"][train])
    pairs = Near(test[found.test], train[found.train], found.distance)
    pairs = pairs.at(np.flatnonzero(agree(read, boxes, pairs.test, pairs.train)))
    return pairs.at(np.unique(pairs.test, return_index=True)[1])  # the pairs of a test image are sorted by distance


def agree(read: Read, boxes: Boxes, ones: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
    """Return a mask (n,) of the pairs whose pixels agree; see :func:`podline.data.images.hashing.agreement`."""
    agreeing = np.zeros(len(ones), np.bool_)
    for first in range(0, len(ones), _PAIRS_AT_ONCE):
        some = slice(first, first + _PAIRS_AT_ONCE)
        correlation, colour = agreement(read, boxes, ones[some], others[some])
        agreeing[some] = (correlation >= CORRELATION) & (colour <= COLOUR)
    return agreeing


def close(test: Hashes, train: Hashes, distance: int = DISTANCE) -> Near:
    """Return pairs of test and training hashes, uint64 (m,) and (n,), that differ in at most ``distance`` bits.

    A test hash is paired with at most its 8 nearest training hashes. Pairs are ordered by test index, then distance,
    then training index.

    Hashes that differ in d bits differ in at most d / 4 bits of one of four bands, so lookup tables of the bands yield
    all pairs (M. Norouzi, A. Punjani, D. J. Fleet, Fast Search in Hamming Space with Multi-Index Hashing, 2012). A test
    hash with too many candidates, such as a frame of a film, is compared with all training hashes instead.
    """
    pairs, left = [_NOTHING], np.arange(len(test))
    if len(test) * len(train) > _FEW_PAIRS:
        for band in range(_BANDS):
            found, heavy = zip(*_in_blocks(_in_band(test, train, distance, band), left, _BAND_BLOCK), strict=True)
            pairs += [_nearest(_joined(found))]
            left = np.setdiff1d(left, np.concatenate(heavy), assume_unique=True)
        left = np.setdiff1d(np.arange(len(test)), left, assume_unique=True)
    return _nearest(_joined([*pairs, *_in_blocks(partial(_of_all, test, train, distance), left, _TEST_BLOCK)]))


def _in_blocks(find: Callable[[Numbers], T], tests: Numbers, size: int) -> Iterator[T]:
    """Yield ``find``'s result for each block of test hashes, computed in parallel; report the progress."""
    blocks = [tests[first : first + size] for first in range(0, len(tests), size)] or [tests]
    found = in_order(find, blocks, usable_cores())
    return counted(found, len(blocks), "parts compared for near-duplicates")


def _in_band(test: Hashes, train: Hashes, distance: int, number: int) -> Callable[[Numbers], tuple[Near, Numbers]]:
    """Index the training hashes by their bits in one band; return a function that finds pairs with similar bits.

    The function takes indices of test hashes. It also returns those with too many candidates, which get no pairs.
    """
    low, high = (BITS * edge // _BANDS for edge in (number, number + 1))
    masks = np.flatnonzero(np.bitwise_count(np.arange(1 << high - low)) <= distance // _BANDS)

    def bits(hashes: Hashes) -> Numbers:
        return (hashes >> np.uint64(low)).astype(np.int64) & ((1 << high - low) - 1)

    order = np.argsort(bits(train), kind="stable")
    ordered = train[order]
    starts = np.searchsorted(bits(ordered), np.arange((1 << high - low) + 1))
    most = max(len(train) // _MOST_CANDIDATES, _MOST_COMPARED)

    def find(tests: Numbers) -> tuple[Near, Numbers]:
        values = bits(test[tests])[:, np.newaxis] ^ masks
        firsts, counts = starts[values], starts[values + 1] - starts[values]
        heavy = counts.sum(axis=1) > most
        counts[heavy] = 0
        ends = np.cumsum(counts)
        candidates = np.repeat(firsts.ravel() - ends + counts.ravel(), counts.ravel())
        candidates += np.arange(len(candidates))
        which = np.repeat(tests, counts.sum(axis=1))
        far = np.bitwise_count(test[which] ^ ordered[candidates])
        near = np.flatnonzero(far <= distance)
        return _nearest(Near(which[near], order[candidates[near]], far[near].astype(np.int64))), tests[heavy]

    return find


def _joined(parts: Iterable[Near]) -> Near:
    return Near(*map(np.concatenate, zip(*parts, strict=True)))


def _nearest(pairs: Near) -> Near:
    """Return the nearest distinct pairs of each test hash, at most 8, by test hash, distance and training index."""
    order = np.lexsort((pairs.train, pairs.distance, pairs.test))
    test, train, _ = pairs.at(order)
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(test) != 0) | (np.diff(train) != 0)
    order, test = order[new], test[new]
    return pairs.at(order[np.arange(len(test)) - np.searchsorted(test, test) < _MOST_COMPARED])


def _of_all(test: Hashes, train: Hashes, distance: int, tests: Numbers) -> Near:
    """Return the pairs of the hashes ``tests``, by comparing each with all training hashes."""
    some = test[tests, np.newaxis]
    limits, pairs = np.full(len(some), distance), [(_NONE, _NONE)] * len(some)
    for start in range(0, len(train), _TRAIN_BLOCK):
        bits = np.bitwise_count(some ^ train[start : start + _TRAIN_BLOCK])
        for row in np.flatnonzero(bits.min(axis=1) <= limits).tolist():
            others = np.flatnonzero(bits[row] <= limits[row])
            numbers, far = map(np.concatenate, zip(pairs[row], (start + others, bits[row, others]), strict=True))
            nearest = np.argsort(far, kind="stable")[:_MOST_COMPARED]
            pairs[row] = numbers[nearest], far[nearest]
            if len(nearest) == _MOST_COMPARED:  # of equally distant hashes, the first are kept
                limits[row] = far[nearest[-1]] - 1
    which = np.repeat(tests, [len(numbers) for numbers, _ in pairs])
    return _joined([_NOTHING, *(Near(which[:0], numbers, far) for numbers, far in pairs)])._replace(test=which)


def near_counts(pairs: Sequence[NearPair]) -> dict[str, int]:
    """Return description → number of images in a split with a near-duplicate in another split, without zeros."""
    return {
        f"{split} {NEARLY_REPEAT} a {split_in_words(other)} image": len(some)
        for (split, other), some in _by_splits(pairs)
    }


def near_lines(pairs: Sequence[NearPair], sizes: Mapping[str, int]) -> list[str]:
    """Return a line for each pair of splits with the number of near-duplicates."""
    return [f"{_described(some, sizes)}; they are converted; {_DRAWN}" for _, some in _by_splits(pairs)]


def refuse_near(pairs: Sequence[NearPair], sizes: Mapping[str, int], allowed: float) -> None:
    """Raise an error if too many images of a split have a near-duplicate; two are always allowed.

    Raises:
        SourceError: more than the share ``allowed``, 0 … 1, of a split have a near-duplicate.
    """
    for (split, _), some in _by_splits(pairs):
        if len(some) > max(allowed * sizes[split], _LET_PASS):
            share = len(some) / sizes[split]
            raise SourceError(
                f"{_described(some, sizes, f', {share:.1%} vs {allowed:.1%} at most')}: the score would not hold for "
                "new images; give separate splits, in a table a column of groups (conversion.group_column), or "
                f"--set conversion.near_share={math.ceil(100 * share) / 100:g}; {_DRAWN}"
            )


def _by_splits(pairs: Sequence[NearPair]) -> Iterator[tuple[tuple[str, str], list[NearPair]]]:
    """Yield each pair of splits that has near-duplicates, with these."""
    for other, split in APART:
        if some := [pair for pair in pairs if (pair.image.split, pair.repeated.split) == (split, other)]:
            yield (split, other), some


def _described(pairs: Sequence[NearPair], sizes: Mapping[str, int], share: str = "") -> str:
    image, repeated, _ = pairs[0]
    words = f"{len(pairs):,} of the {sizes[image.split]:,} {image.split} images nearly repeat a"
    names = f"{printable(image.key)} and {printable(repeated.key)}"
    return f"{words} {split_in_words(repeated.split)} image{share} ({names}, for one)"
