"""An image of COCO that can be converted, with what is annotated in it."""

from __future__ import annotations

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
        annotations: of people in it, in the source's order, each a
            :class:`podline.data.sources.coco_annotations.Annotation` as JSON.
    """

    id: int
    name: str
    width: int
    height: int
    place: ImagePlace
    pixels: PixelPlace
    annotations: tuple[str, ...]

    def to_json(self) -> str:
        """Return the image as one line."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, line: str) -> CocoImage:
        """Return what :meth:`to_json` wrote."""
        image = cls(*json.loads(line))
        places = {"place": ImagePlace(*image.place), "pixels": PixelPlace(*image.pixels)}
        return image._replace(**places, annotations=tuple(image.annotations))
