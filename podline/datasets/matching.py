"""The records of a version by the identities of their images, to match them with another version's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from podline.data.identity import IDENTITY_BYTES
from podline.data.images.opening import Identities
from podline.data.record_table import Ids, RecordTable, stored_digests

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

    @classmethod
    def of(cls, identities: Identities, first: int = 0) -> Self:
        """Return records numbered from ``first`` on."""
        return cls(np.arange(first, first + len(identities.keys)), *identities)

    def without(self, places: Ids) -> Self:
        """Return all records except those at some places."""
        return self._make(np.delete(column, places) for column in self)


NOTHING = Records.of(Identities(*2 * (np.empty(0, f"S{IDENTITY_BYTES}"),)))


def together(parts: Iterable[Records]) -> Records:
    """Concatenate records."""
    return NOTHING._make(map(np.concatenate, zip(NOTHING, *parts, strict=True)))


def stored_identities(table: RecordTable | None, split: str) -> Identities:
    """Return the keys and digests of a split's records; nothing without a table."""
    if table is None:
        return Identities(NOTHING.keys, NOTHING.digests)
    return Identities(*map(stored_digests, table.of_split(split, "key", "digest").columns))


def joined(keys: Keys, digests: Keys) -> bytes:
    """Return the key and the digest of each record, concatenated."""
    columns = [np.ascontiguousarray(column).view(np.uint8).reshape(-1, IDENTITY_BYTES) for column in (keys, digests)]
    return np.concatenate(columns, axis=1).tobytes()
