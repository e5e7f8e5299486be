"""Images that a data set forgets permanently, append-only: ``forgotten/<dataset>/000001.json`` and so on."""

from __future__ import annotations

import time

from pydantic import AliasChoices, Field

from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.store.contract import Store

FOLDER = "forgotten"


class Forgotten(Frozen):
    """An image that conversions leave out.

    Attributes:
        image: its identity, see :mod:`podline.data.identity`; Podline 1.0 wrote the sha256 of its file.
        key: its path in the source, or the identity.
        reason: a person's reason.
        time: Unix time.
    """

    image: str = Field(validation_alias=AliasChoices("image", "sha256"))
    key: str
    reason: str
    time: float


FORGOTTEN = Series(
    f"{FOLDER}/{{}}", Forgotten, "a forgotten image", "put it back, or delete it and forget the image again"
)


def forgotten(store: Store, dataset: str) -> dict[str, str]:
    """Return the identity of each forgotten image → the first reason; see :meth:`Series.read`."""
    return {one.image: one.reason for one in reversed(FORGOTTEN.read(store, dataset))}


def publish_forgotten(store: Store, dataset: str, image: str, key: str, reason: str) -> None:
    """Add an image to the forgotten images of a data set, unless it is listed; see :meth:`Series.append`."""
    new = Forgotten(image=image, key=key, reason=reason, time=time.time())
    FORGOTTEN.append(store, dataset, lambda _, known: None if image in {one.image for one in known} else new)
