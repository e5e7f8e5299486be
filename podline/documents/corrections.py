"""Reviews of a data set's labels by people, append-only: ``corrections/<dataset>/000001.json`` and so on.

If two reviews decide about one image, the later one counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.store.contract import Store

FOLDER = "corrections"

Decision = Literal["keep", "relabel", "drop"]


class Correction(Frozen):
    """A person's decision about an image.

    Attributes:
        decision: ``keep`` the label, ``relabel`` the image, or ``drop`` it.
        label: the right label, for ``relabel``.
    """

    decision: Decision
    label: str = ""


class Review(Frozen):
    """A review of several images.

    Attributes:
        by: name of the reviewer.
        time: Unix time.
        corrections: decisions by the identity of an image; see :mod:`podline.data.identity`. Podline 1.0 wrote the
            sha256 of its pixels.
    """

    by: str
    time: float
    corrections: dict[str, Correction] = Field(min_length=1)


REVIEWS = Series(f"{FOLDER}/{{}}", Review, "a review", "put it back, or delete it and apply the review again")


def corrections(store: Store, dataset: str) -> dict[str, Correction]:
    """Return the effective decisions of all reviews of a data set, by the image's identity; see :meth:`Series.read`."""
    found = REVIEWS.read(store, dataset)
    return {image: said for review in found for image, said in review.corrections.items()}


def publish_review(store: Store, dataset: str, by: str, said: Mapping[str, Correction]) -> str:
    """Add a review to a data set; return its name in the store."""
    review = Review(by=by, time=time.time(), corrections=dict(said))
    number = REVIEWS.append(store, dataset, lambda _number, _known: review)
    return REVIEWS.name(dataset, number)
