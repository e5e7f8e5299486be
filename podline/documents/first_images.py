"""The number and size of the training images when a data set was first converted.

The recipe for few images chooses its network and values by them, so that all later nights train the same network.
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
        images: number of images.
        side: median of the images' longer sides, in pixels.
    """

    images: int
    side: int


def first_images(store: Store, dataset: str) -> FirstImages | None:
    """Return the number and size of the images at a data set's first conversion; None if they are not recorded.

    Raises:
        ArtifactError: the document is damaged.
    """
    name = _name(dataset)
    if not store.exists(name):
        return None
    return read_model(store, name, FirstImages, "a number and size of images", "delete it and give --model")


def is_first(store: Store, dataset: str) -> bool:
    """Return whether a data set was never converted: it has no version and no :class:`FirstImages`."""
    return not store.exists(_name(dataset)) and not versions(store, dataset)


def publish_first_images(store: Store, dataset: str, first: FirstImages) -> None:
    """Record the images of a first conversion, unless another process has done so."""
    with contextlib.suppress(TakenError):
        store.publish_json(_name(dataset), first.model_dump())


def _name(dataset: str) -> str:
    return f"{FOLDER}/{dataset}.json"
