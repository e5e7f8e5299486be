"""The reason why an image is left out of a conversion: a kind, by which images are counted, and a detail."""

from __future__ import annotations

from typing import NamedTuple, Self

FORGOTTEN = "forgotten"
"""The kind of reason for an image that `podline data forget` removed; the detail is the user's reason."""
DROPPED = "dropped by a review"


class Reason(NamedTuple):
    """Why an image is left out.

    Attributes:
        kind: a phrase after the image's name.
        detail: facts that concern only this image; often empty.
    """

    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse ``kind: detail``, the text of a layout or a decoder."""
        kind, _, detail = text.partition(": ")
        return cls(kind, detail)

    @property
    def is_wanted(self) -> bool:
        """Return whether a person left the image out on purpose."""
        return self.kind in (FORGOTTEN, DROPPED)
