"""An image of COCO that can be converted, with what is annotated in it."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from podline.data.sources.coco_files import ImagePlace

MASK_STRIDE = 4
"""Pixels of the square to a cell of the mask of ignored people."""


class PixelPlace(NamedTuple):
    """Where an image's decoded pixels are.

    Attributes:
        part: the number of the file of annotations that lists it.
        row: the image's number among those.
    """

    part: int
    row: int


class CocoImage(NamedTuple):
    """An image that can be converted, and what is annotated in it, in its own pixels.

    Attributes:
        id: COCO's.
        name: of its file.
        width: of the image that was annotated.
        height: likewise.
        place: where its file is.
        pixels: where its pixels are.
        people: those that get a place in its record, the largest first, as
            :func:`podline.data.sources.coco_people.packed` writes them.
        ignored: annotations as :func:`podline.data.sources.coco_masks.ignored_mask` wants them, as JSON.
        annotations: all that are of people, in the source's order, each as JSON; see
            :func:`podline.data.sources.coco_annotations.annotation_texts`.
    """

    id: int
    name: str
    width: int
    height: int
    place: ImagePlace
    pixels: PixelPlace
    people: bytes
    ignored: str
    annotations: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return what a record is made of, as one line: all but the annotations."""
        encoded = base64.b64encode(self.people).decode()
        return json.dumps([*self[:6], encoded, self.ignored])

    @classmethod
    def from_json(cls, line: str) -> CocoImage:
        """Return what :meth:`to_json` wrote."""
        number, name, width, height, place, pixels, people, ignored = json.loads(line)
        places = ImagePlace(*place), PixelPlace(*pixels)
        return cls(number, name, width, height, *places, base64.b64decode(people), ignored)
