"""Images that a data set forgets for good, append-only: ``forgotten/<dataset>/000001.json`` and so on."""

from __future__ import annotations

import re
import time

from pydantic import ValidationError

from podline.errors import ArtifactError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER = "forgotten"
_NAME = re.compile(rf"{FOLDER}/[^/]+/\d{{6}}\.json")


class Forgotten(Frozen):
    """An image that conversions leave out.

    Attributes:
        sha256: of its file, hexadecimal.
        key: what it was called: its path in the source, or the sha256.
        reason: a person's.
        time: Unix time.
    """

    sha256: str
    key: str
    reason: str
    time: float


def is_forgotten(name: str) -> bool:
    """Return whether a name in the store is that of a forgotten image."""
    return bool(_NAME.fullmatch(name))


def forgotten(store: Store, dataset: str) -> dict[str, str]:
    """Return the forgotten images of a data set: the sha256 of each one's file → the first reason; see :func:`read`."""
    return {one.sha256: one.reason for one in reversed(read(store, dataset))}


def read(store: Store, dataset: str) -> list[Forgotten]:
    """Return the documents of a data set's forgotten images, the oldest first.

    Raises:
        ArtifactError: a document is damaged.
    """
    found = list[Forgotten]()
    for name in filter(is_forgotten, store.list(f"{FOLDER}/{dataset}")):
        try:
            found.append(Forgotten.model_validate(store.read_json(name)))
        except ValidationError as error:
            raise ArtifactError(
                f"{store.where(name)} is no forgotten image ({error.error_count()} problems); put it back, or delete "
                "it and forget the image again"
            ) from error
    return found


def publish_forgotten(store: Store, dataset: str, sha256: str, key: str, reason: str) -> None:
    """Add an image to the forgotten ones of a data set, unless it is one.

    Raises:
        StoreError: the store cannot be written.
    """
    one = Forgotten(sha256=sha256, key=key, reason=reason, time=time.time())
    while sha256 not in forgotten(store, dataset):
        number = len(store.list(f"{FOLDER}/{dataset}")) + 1
        try:
            store.publish_json(f"{FOLDER}/{dataset}/{number:06d}.json", one.model_dump(mode="json"))
        except TakenError:
            continue
