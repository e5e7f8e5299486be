"""Images that all later conversions of a data set omit, append-only: ``forgotten/<dataset>/000001.json`` and so on."""

from __future__ import annotations

import time

from pydantic import AliasChoices, Field

from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.store.contract import Store

FOLDER = "forgotten"


class Forgotten(Frozen):
    """An image that all later conversions omit.

    Attributes:
        image: the image's identity, see :mod:`podline.data.identity`; Podline 1.0 wrote the sha256 of the file.
        key: the image's path in the source, or the identity.
        reason: the reason that a person gave.
        time: Unix time.
    """

    image: str = Field(validation_alias=AliasChoices("image", "sha256"))
    key: str
    reason: str
    time: float


FORGOTTEN = Series(
    f"{FOLDER}/{{}}", Forgotten, "a forgotten image", "restore the file, or delete it and forget the image again"
)


def forgotten(store: Store, dataset: str) -> dict[str, str]:
    """Return the identity of each forgotten image → the first reason given; see :meth:`Series.read`."""
    return {each.image: each.reason for each in reversed(FORGOTTEN.read(store, dataset))}


def publish_forgotten(store: Store, dataset: str, image: str, key: str, reason: str) -> None:
    """Add an image to a data set's forgotten images, unless it is already there; see :meth:`Series.append`."""
    new = Forgotten(image=image, key=key, reason=reason, time=time.time())
    FORGOTTEN.append(store, dataset, lambda _, known: None if image in {each.image for each in known} else new)
