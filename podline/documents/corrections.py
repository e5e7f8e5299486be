"""What people said of a data set's labels: reviews, append-only, ``corrections/<dataset>/000001.json`` and so on.

Of what two reviews say about one image, the later counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from podline.documents.numbered import Series
from podline.frozen import Frozen
from podline.store.contract import Store

FOLDER = "corrections"

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


REVIEWS = Series(f"{FOLDER}/{{}}", Review, "a review", "put it back, or delete it and apply the review again")


def corrections(store: Store, dataset: str) -> dict[str, Correction]:
    """Return what counts of all reviews of a data set, by the sha256 of an image's pixels; see :meth:`Series.read`."""
    found = REVIEWS.read(store, dataset)
    return {image: said for review in found for image, said in review.corrections.items()}


def publish_review(store: Store, dataset: str, by: str, said: Mapping[str, Correction]) -> str:
    """Add a review to those of a data set; return its name in the store."""
    review = Review(by=by, time=time.time(), corrections=dict(said))
    number = REVIEWS.append(store, dataset, lambda _number, _known: review)
    return REVIEWS.name(dataset, number)
