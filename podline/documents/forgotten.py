"""Images that a data set forgets permanently, append-only: ``forgotten/<dataset>/000001.json`` and so on."""

from __future__ import annotations

import time

from podline.documents.numbered import Series
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER = "forgotten"


class Forgotten(Frozen):
    """An image that conversions leave out.

    Attributes:
        sha256: hexadecimal checksum of its file.
        key: its path in the source, or the sha256.
        reason: a person's reason.
        time: Unix time.
    """

    sha256: str
    key: str
    reason: str
    time: float


FORGOTTEN = Series(
    f"{FOLDER}/{{}}", Forgotten, "a forgotten image", "put it back, or delete it and forget the image again"
)


def forgotten(store: Store, dataset: str) -> dict[str, str]:
    """Return the sha256 of each forgotten image's file → the first reason; see :meth:`Series.read`."""
    return {one.sha256: one.reason for one in reversed(FORGOTTEN.read(store, dataset))}


def publish_forgotten(store: Store, dataset: str, sha256: str, key: str, reason: str) -> None:
    """Add an image to the forgotten images of a data set, unless it is listed; see :meth:`Series.append`."""
    new = Forgotten(sha256=sha256, key=key, reason=reason, time=time.time())
    FORGOTTEN.append(store, dataset, lambda _, known: None if sha256 in {one.sha256 for one in known} else new)
