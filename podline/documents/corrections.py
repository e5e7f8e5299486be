"""People's corrections of a data set's labels, append-only: ``corrections/<dataset>/000001.json`` and so on.

If two reviews contain the same image, the later review counts.
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
    """A person's decision about an image's label.

    Attributes:
        decision: ``keep`` the label, ``relabel`` the image, or ``drop`` the image from the data set.
        label: the right label, for ``relabel``.
    """

    decision: Decision
    label: str = ""


class Review(Frozen):
    """A review of several images.

    Attributes:
        by: name of the reviewer.
        time: Unix time.
        corrections: an image's identity (see :mod:`podline.data.identity`) → the decision. Podline 1.0 wrote the sha256
            of the image's pixels as identity.
    """

    by: str
    time: float
    corrections: dict[str, Correction] = Field(min_length=1)


REVIEWS = Series(f"{FOLDER}/{{}}", Review, "a review", "restore the file, or delete it and apply the review again")


def corrections(store: Store, dataset: str) -> dict[str, Correction]:
    """Return an image's identity → the latest decision about it, from all reviews; see :meth:`Series.read`."""
    reviews = REVIEWS.read(store, dataset)
    return {image: decision for review in reviews for image, decision in review.corrections.items()}


def publish_review(store: Store, dataset: str, by: str, decisions: Mapping[str, Correction]) -> str:
    """Add a person's review of a data set's labels; return the store name of the new document."""
    review = Review(by=by, time=time.time(), corrections=dict(decisions))
    number = REVIEWS.append(store, dataset, lambda _number, _known: review)
    return REVIEWS.name(dataset, number)
