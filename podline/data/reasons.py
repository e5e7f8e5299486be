"""The reason why an image of a source is left out: a kind, which is counted, and a detail of this image."""

from __future__ import annotations

from typing import NamedTuple, Self

FORGOTTEN = "forgotten"
"""The kind for an image that a person has forgotten; the detail is the person's reason."""
DROPPED = "dropped by a review"


class Reason(NamedTuple):
    """Why an image is left out.

    Attributes:
        kind: a phrase after the image's name.
        detail: what is true of this image alone; often empty.
    """

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the reason of a layout's or decoder's text, ``kind: detail``."""
        kind, _, detail = text.partition(": ")
        return cls(kind, detail)

    @property
    def is_wanted(self) -> bool:
        """Return whether a person left the image out on purpose."""
        return self.kind in (FORGOTTEN, DROPPED)
