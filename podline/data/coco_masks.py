"""Where in an image people are whom nobody labelled: crowds, and people without a single joint.

A network is neither to learn nor to be judged there. COCO gives these places as polygons, or as run lengths (RLE), see
https://cocodataset.org/#format-data; run lengths count pixels down the columns, first those outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as rle

from podline.data.coco_letterbox import LetterBox
from podline.errors import SourceError

Mask = npt.NDArray[np.uint8]

_LEAST_POLYGON = 6  # three points


def is_unlabelled(annotation: Mapping[str, Any]) -> bool:
    """Whether an annotation is a crowd or a person without a labelled joint."""
    return bool(annotation["iscrowd"]) or not annotation["num_keypoints"]


def ignored_mask(annotations: Iterable[Mapping[str, Any]], letterbox: LetterBox, stride: int) -> Mask:
    """The share of each cell that unlabelled people cover.

    Args:
        annotations: of one image; labelled people among them are left out.
        letterbox: the image in the network's input; its side is a multiple of the stride.
        stride: pixels of the network's input to a cell.

    Returns:
        uint8 (side / stride, side / stride), 0 … 255. An annotation without a usable outline covers its box.

    Raises:
        SourceError: an outline that cannot be one of this image.
    """
    cells = letterbox.side // stride
    unlabelled = [annotation for annotation in annotations if is_unlabelled(annotation)]
    if not unlabelled:
        return np.zeros((cells, cells), np.uint8)
    covered = np.zeros((letterbox.height, letterbox.width), np.uint8)
    for annotation in unlabelled:
        _cover(covered, annotation)
    parts = letterbox.place(covered).reshape(cells, stride, cells, stride)
    return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)


def _cover(covered: Mask, annotation: Mapping[str, Any]) -> None:
    """Sets the pixels of one annotation to 255."""
    segmentation = annotation.get("segmentation")
    if isinstance(segmentation, Mapping):
        covered[_from_run_lengths(segmentation, annotation["id"], covered.shape)] = 255
        return
    polygons = [polygon for polygon in segmentation or [] if len(polygon) >= _LEAST_POLYGON]
    if not polygons:
        left, top, width, height = annotation["bbox"]
        polygons = [[left, top, left + width, top, left + width, top + height, left, top + height]]
    for polygon in polygons:
        _fill(covered, polygon, annotation["id"])


def _fill(covered: Mask, polygon: list[float], annotation: int) -> None:
    corners = np.array(polygon[: len(polygon) // 2 * 2], np.float64).reshape(-1, 2)
    if not np.isfinite(corners).all():
        raise SourceError(f"annotation {annotation}: its outline has a corner that is not a finite number")
    # Corners far outside are drawn in to the border: its integers cannot hold just any number.
    inside = np.clip(corners, -1, np.array(covered.shape[::-1]) + 1)
    # COCO's own filling, so a pixel is a crowd's here if it is there.
    polygons: Any = [inside.ravel().tolist()]
    [drawn] = rle.frPyObjects(polygons, *covered.shape)
    covered[_from_run_lengths({**drawn, "counts": drawn["counts"].decode()}, annotation, covered.shape)] = 255


def _from_run_lengths(
    segmentation: Mapping[str, Any], annotation: int, shape: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """The pixels, (height, width)."""
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if list(size or []) != list(shape):
        raise SourceError(
            f"annotation {annotation}: run lengths of size {size} vs an image of {list(shape)}; "
            "the annotations are not this image's"
        )
    lengths = _uncompressed(counts) if isinstance(counts, str) else counts
    if not isinstance(lengths, list) or min(lengths, default=0) < 0 or sum(lengths) != shape[0] * shape[1]:
        found = f"lengths add up to {sum(lengths)}" if isinstance(lengths, list) else f"counts are {counts!r}"
        raise SourceError(f"annotation {annotation}: run {found} vs {shape[0] * shape[1]} pixels of the image")
    inside = np.arange(len(lengths)) % 2 == 1
    return np.repeat(inside, lengths).reshape(shape[::-1]).T


def _uncompressed(text: str) -> list[int]:
    """Run lengths from COCO's text form: five bits to a character, from the third length on less the one two before.

    ``rleFrString`` of pycocotools' maskApi.c; here a damaged text gives damaged lengths, never a read out of bounds.
    """
    lengths: list[int] = []
    value = shift = 0
    for character in text:
        digit = ord(character) - 48
        value |= (digit & 0x1F) << shift
        shift += 5
        if not digit & 0x20:
            if digit & 0x10:
                value -= 1 << shift
            lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
            value = shift = 0
    return lengths
