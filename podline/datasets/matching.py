"""Matches the records of two versions by the sha256 of their image files, in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.opening import Identities
from podline.data.record_table import DIGEST_BYTES, Ids, RecordTable, stored_digests

Keys = npt.NDArray[np.bytes_]


class Records(NamedTuple):
    """Some records of a version.

    Attributes:
        ids: numbers of the records, ascending, (n,).
        keys: see :class:`Identities`.
        digests: see :class:`Identities`.
    """

    ids: Ids
    keys: Keys
    digests: Keys

    def part(self, some: slice) -> Records:
        """Return the records at some places."""
        return self._make(column[some] for column in self)

    def without(self, places: Ids) -> Records:
        """Return all records except those at some places."""
        return self._make(np.delete(column, places) for column in self)


NOTHING = Records(np.empty(0, np.int64), *2 * (np.empty(0, f"S{DIGEST_BYTES}"),))


def together(parts: Iterable[Records]) -> Records:
    """Concatenate records."""
    return NOTHING._make(map(np.concatenate, zip(NOTHING, *parts, strict=True)))


def numbered(identities: Iterable[Identities], first: int = 0) -> Iterator[Records]:
    """Yield records with their numbers, starting at ``first``."""
    for some in identities:
        yield Records(np.arange(first, first := first + len(some.keys)), *some)


def stored_identities(table: RecordTable | None, split: str) -> Iterator[Identities]:
    """Yield the keys and digests of a split's records, in batches; nothing without a table."""
    for rows in table.of_split(split, "key", "digest") if table else ():
        yield Identities(*map(stored_digests, rows.columns))


def matched(then: Iterator[Records], now: Iterator[Records]) -> Iterator[tuple[Records, Records, Ids, Ids]]:
    """Match the records of two sides with ascending keys; memory holds a part of them at a time.

    Yields:
        All records of each side with some keys; then the places among them of records with equal keys, the first of one
        side paired with the first of the other.
    """
    sides, waiting, ended = (then, now), [NOTHING, NOTHING], [False, False]
    while True:
        for n, side in enumerate(sides):
            while not ended[n] and np.all(waiting[n].keys[:1] == waiting[n].keys[-1:]):  # the key may go on
                some = next(side, None)
                ended[n] = some is None
                waiting[n] = together([waiting[n], some or NOTHING])
        if all(ended) and not any(len(one.keys) for one in waiting):
            return
        lasts = [one.keys[-1] for one, at_end in zip(waiting, ended, strict=True) if not at_end]
        cuts = [int(np.searchsorted(one.keys, min(lasts))) if lasts else len(one.keys) for one in waiting]
        before, after = (one.part(slice(cut)) for one, cut in zip(waiting, cuts, strict=True))
        waiting = [one.part(slice(cut, None)) for one, cut in zip(waiting, cuts, strict=True)]
        starts = np.arange(len(after.keys))  # starts of the records of each key
        starts[1:][after.keys[1:] == after.keys[:-1]] = 0
        nth = np.arange(len(after.keys)) - np.maximum.accumulate(starts)
        at = np.searchsorted(before.keys, after.keys) + nth
        new = np.flatnonzero(at < len(before.keys))
        new = new[before.keys[at[new]] == after.keys[new]]
        yield before, after, at[new], new


def joined(keys: Keys, digests: Keys) -> bytes:
    """Return the key and the digest of each record, concatenated."""
    columns = [np.ascontiguousarray(column).view(np.uint8).reshape(-1, DIGEST_BYTES) for column in (keys, digests)]
    return np.concatenate(columns, axis=1).tobytes()
