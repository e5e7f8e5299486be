"""What people said of a data set's labels: reviews, append-only, ``corrections/<dataset>/000001.json`` and so on.

A review appears whole and under a new number, in a folder as in a bucket: of two at once, the second gets the next
number, and none is lost. Of what two reviews say about one image, the later counts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationError

from podline.errors import ArtifactError, TakenError
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER = "corrections"
_NAME = re.compile(rf"{FOLDER}/[^/]+/\d{{6}}\.json")

Decision = Literal["keep", "relabel", "drop"]


class Correction(Frozen):
    """A person's decision about an image.

    Attributes:
        decision: its label is right, or another one is, or the image is not to be used.
        label: the right one, of ``relabel``.
    """

    decision: Decision
    label: str = ""


class Review(Frozen):
    """A review.

    Attributes:
        by: who says so.
        time: Unix time.
        corrections: by the sha256 of an image's pixels in the data set.
    """

    by: str
    time: float
    corrections: dict[str, Correction] = Field(min_length=1)


def is_review(name: str) -> bool:
    """Return whether a name in the store is that of a review."""
    return bool(_NAME.fullmatch(name))


def reviews(store: Store, dataset: str) -> list[Review]:
    """Return the reviews of a data set, the oldest first.

    Raises:
        ArtifactError: one is damaged.
    """
    found = list[Review]()
    for name in filter(is_review, store.list(f"{FOLDER}/{dataset}")):
        try:
            found.append(Review.model_validate(store.read_json(name)))
        except ValidationError as error:
            raise ArtifactError(
                f"{store.where(name)} is not a review ({error.error_count()} problems); put it back, or delete it and "
                "apply the review again"
            ) from error
    return found


def corrections(store: Store, dataset: str) -> dict[str, Correction]:
    """Return what counts of all reviews of a data set, by the sha256 of an image's pixels.

    Raises:
        ArtifactError: a review is damaged.
    """
    return {image: said for review in reviews(store, dataset) for image, said in review.corrections.items()}


def publish_review(store: Store, dataset: str, by: str, said: Mapping[str, Correction]) -> str:
    """Add a review to those of a data set; return its name in the store.

    Raises:
        StoreError: the store cannot be written.
    """
    review = Review(by=by, time=time.time(), corrections=dict(said))
    number = len(store.list(f"{FOLDER}/{dataset}"))
    while True:
        number += 1
        name = f"{FOLDER}/{dataset}/{number:06d}.json"
        try:
            store.publish_json(name, review.model_dump(mode="json"))
        except TakenError:
            continue
        return name
