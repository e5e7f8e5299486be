"""The number and size of the training images at the first conversion of a data set's name.

They choose the values of a recipe for few images once, so that the later nights of the name train the same network.
"""

from __future__ import annotations

import contextlib

from podline.base.errors import TakenError
from podline.base.frozen import Frozen
from podline.documents.reading import read_model
from podline.documents.versions import versions
from podline.store.contract import Store

FOLDER = "first-images"


class FirstImages(Frozen):
    """The training images of a first conversion.

    Attributes:
        images: their number.
        side: the median of their longer sides, in pixels.
    """

    images: int
    side: int


def first_images(store: Store, dataset: str) -> FirstImages | None:
    """Return what the first conversion of a data set's name had; None without a document.

    Raises:
        ArtifactError: the document is damaged.
    """
    name = _name(dataset)
    if not store.exists(name):
        return None
    return read_model(store, name, FirstImages, "a number and size of images", "delete it, and give --model")


def is_first(store: Store, dataset: str) -> bool:
    """Return whether a data set has neither a document nor a converted version."""
    return not store.exists(_name(dataset)) and not versions(store, dataset)


def publish_first_images(store: Store, dataset: str, found: FirstImages) -> None:
    """Publish what a first conversion has; the document of another process stays."""
    with contextlib.suppress(TakenError):
        store.publish_json(_name(dataset), found.model_dump())


def _name(dataset: str) -> str:
    return f"{FOLDER}/{dataset}.json"
