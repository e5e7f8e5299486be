"""People's decisions about a data set's images, append-only: corrected labels, and images to leave out.

The documents are ``corrections/<dataset>/000001.json`` and ``forgotten/<dataset>/000001.json`` and so on. If two
reviews contain the same image, the later review counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from pydantic import AliasChoices, Field

from podline.base.frozen import Frozen
from podline.documents.numbered import Series
from podline.store.contract import Store

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


REVIEWS = Series("corrections/{}", Review, "a review", "restore the file, or delete it and apply the review again")


def corrections(store: Store, dataset: str) -> dict[str, Correction]:
    """Return an image's identity → the latest decision about it, from all reviews; see :meth:`Series.read`."""
    reviews = REVIEWS.read(store, dataset)
    return {image: decision for review in reviews for image, decision in review.corrections.items()}


def publish_review(store: Store, dataset: str, by: str, decisions: Mapping[str, Correction]) -> str:
    """Add a person's review of a data set's labels; return the store name of the new document."""
    review = Review(by=by, time=time.time(), corrections=dict(decisions))
    number = REVIEWS.append(store, dataset, lambda _number, _known: review)
    return REVIEWS.name(dataset, number)


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
    "forgotten/{}", Forgotten, "a forgotten image", "restore the file, or delete it and forget the image again"
)


def forgotten(store: Store, dataset: str) -> dict[str, str]:
    """Return the identity of each forgotten image → the first reason given; see :meth:`Series.read`."""
    return {each.image: each.reason for each in reversed(FORGOTTEN.read(store, dataset))}


def publish_forgotten(store: Store, dataset: str, image: str, key: str, reason: str) -> None:
    """Add an image to a data set's forgotten images, unless it is already there; see :meth:`Series.append`."""
    new = Forgotten(image=image, key=key, reason=reason, time=time.time())
    FORGOTTEN.append(store, dataset, lambda _, known: None if image in {each.image for each in known} else new)
