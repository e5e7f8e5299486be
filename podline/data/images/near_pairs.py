"""Near-duplicates across the splits of images of one's own: found once, told, and refused above a share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podline.data.decoded_rows import DecodedRows
from podline.data.fitting import shown_size
from podline.data.images.deciding import Decided
from podline.data.images.hashing import HASHED, VERSION, Numbers, Pixels, Read, hashes
from podline.data.images.items import TEST, TRAIN
from podline.data.images.near import near_duplicates
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import RawFile, made_once, write_raw_file
from podline.data.shown import printable
from podline.errors import SourceError
from podline.store import digests
from podline.store.contract import explained

_HASHES = "hashes"
_DRAWN = "`podline data check SOURCE --near-duplicates FILE` draws them"
_LET_PASS = 2  # test images: they prove nothing, in however small a split


class NearPair(NamedTuple):
    """Two images that show nearly the same.

    Attributes:
        test: the place of the test image among all that were looked at.
        train: of the training image.
        distance: bits of 63 in which their hashes differ.
    """

    test: int
    train: int
    distance: int


@dataclass(frozen=True)
class NearSearch:
    """Looks for near-duplicates among decoded images.

    Attributes:
        work: the cache folder, which keeps the images' hashes.
        key: under which it has their pixels.
        pixels: these.
        settings: what the images became.
    """

    work: Path
    key: str
    pixels: DecodedRows
    settings: ImagesSettings

    def read(self, rows: Numbers) -> Pixels:
        """Images by row, uint8 (n, side, side, channels).

        Raises:
            SourceError: the file is gone or shorter than it was.
        """
        shape = self.settings.shape
        pixels = np.empty((len(rows), math.prod(shape)), np.uint8)
        self.pixels.read_into(pixels, np.arange(len(rows)), rows)
        return pixels.reshape(-1, *shape)

    def pairs(self, decided: Decided) -> tuple[NearPair, ...]:
        """Of each test image that has one, the nearest training image; the nearest pairs first.

        Raises:
            StoreError: the cache folder cannot be written.
        """
        boxes = self._boxes(decided)
        key = digests.of_json([self.key, _HASHES, VERSION])
        (file,) = made_once(self.work, key, partial(_hash, self.read, boxes))
        with explained("read", str(file.path)):
            hashed = np.fromfile(str(file.path), HASHED)
        test, train = (np.array(decided.kept(split), np.int64) for split in (TEST, TRAIN))
        rows = np.array([one.row for one in decided.seen], np.int64)
        found = near_duplicates(self.read, boxes, hashed, rows[test], rows[train])
        pairs = zip(test[found.test].tolist(), train[found.train].tolist(), found.distance.tolist(), strict=True)
        return tuple(sorted((NearPair(*pair) for pair in pairs), key=lambda pair: pair.distance))

    def _boxes(self, decided: Decided) -> Numbers:
        """Height and width of what each image shows, by row; zeros of one that is none."""
        boxes = np.zeros((self.pixels.count, 2), np.int64)
        for one in decided.seen:
            if one.width and one.height:
                boxes[one.row] = shown_size(one.height, one.width, self.settings.shape, self.settings.fit)
        return boxes


def _hash(read: Read, boxes: Numbers, folder: Path) -> list[RawFile]:
    return [write_raw_file(_HASHES, folder / _HASHES, [hashes(read, boxes).tobytes()])]


def near_lines(pairs: Sequence[NearPair], decided: Decided) -> list[str]:
    """How many test images have a near-duplicate, in words."""
    if not pairs:
        return []
    return [f"{_counted(pairs, decided)} ({_first(pairs, decided)}); they are converted; {_DRAWN}"]


def refuse_near(pairs: Sequence[NearPair], decided: Decided, allowed: float) -> None:
    """Check that few test images have a near-duplicate; two are let pass.

    Raises:
        SourceError: more than a share, 0 … 1, have one.
    """
    count = len(decided.kept(TEST))
    if len(pairs) <= max(allowed * count, _LET_PASS):
        return
    share = len(pairs) / count
    raise SourceError(
        f"{_counted(pairs, decided)}, {share:.1%} vs {allowed:.1%} at most ({_first(pairs, decided)}): the evaluation "
        "would lie inside the training set; give a column of groups (conversion.group_column), splits that are apart, "
        f"or --set conversion.near_share={math.ceil(100 * share) / 100:g}; {_DRAWN}"
    )


def _counted(pairs: Sequence[NearPair], decided: Decided) -> str:
    return f"{len(pairs):,} of the {len(decided.kept(TEST)):,} test images nearly repeat a training image"


def _first(pairs: Sequence[NearPair], decided: Decided) -> str:
    test, train, _distance = pairs[0]
    return f"{printable(decided.seen[test].key)} and {printable(decided.seen[train].key)}, for one"
