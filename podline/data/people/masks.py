"""Compute the regions of an image with crowds, people without a labelled joint, and people beyond a record's places.

Training and evaluation ignore these regions. COCO stores them as polygons or run lengths (RLE), see
https://cocodataset.org/#format-data. Run lengths count pixels column by column, background first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as rle

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.fitting import fitted
from podline.data.letterbox import LetterBox
from podline.data.shown import shortened

Lengths = npt.NDArray[np.int64]
Runs = npt.NDArray[np.int64]

_LEAST_POLYGON = 6  # values, for three points
# A digit of a run length in text: five bits, and a flag if digits follow; the last digit's highest bit is the sign.
_BITS, _GOES_ON, _NEGATIVE = 0x1F, 0x20, 0x10
_MOST_DIGITS = 7  # five bits each: enough for more pixels than an image has


def ignored_mask(annotations: Iterable[Mapping[str, Any]], letterbox: LetterBox, stride: int) -> npt.NDArray[np.uint8]:
    """Return the share of each cell that ignored people cover.

    Args:
        annotations: the ignored annotations of one image; see :func:`podline.data.people.image.chosen`.
        letterbox: how the image fits into the network's input, whose side is a multiple of ``stride``.
        stride: side of a cell in pixels of the network's input.

    Returns:
        uint8 (side / stride, side / stride), 0 … 255. Without a mask or a polygon of three points, an annotation covers
        its box.

    Raises:
        SourceError: a mask has another size than the image or is damaged, or the outlines exceed the limits.
    """
    cells, shape = letterbox.side // stride, (letterbox.height, letterbox.width)
    found = [_drawn(each, shape) if isinstance(each, list) else each for each in _outlines(annotations, shape)]
    if not found:
        return np.zeros((cells, cells), np.uint8)
    # For each pixel, runs that begin minus runs that end; one cumulative sum then draws a thousand crowds.
    edges = np.zeros(shape[0] * shape[1] + 1, np.int32)
    np.add.at(edges, np.concatenate(found), (1, -1))
    covered = (np.cumsum(edges, out=edges)[:-1] > 0).reshape(shape[::-1]).T
    mask = fitted(np.ascontiguousarray(covered) * np.uint8(255), (letterbox.side, letterbox.side, 1), "letterbox")
    parts = mask.reshape(cells, stride, cells, stride)
    return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)


def check_outlines(annotations: Iterable[Mapping[str, Any]], width: int, height: int) -> None:
    """Check, without drawing, that :func:`ignored_mask` accepts some annotations.

    Raises:
        SourceError: see :func:`ignored_mask`.
    """
    for _outline in _outlines(annotations, (height, width)):
        pass


def _outlines(annotations: Iterable[Mapping[str, Any]], shape: tuple[int, int]) -> Iterator[Runs | list[float]]:
    """Yield each annotation's outlines: runs int64 (n, 2), or a polygon as a flat list of x and y."""
    length = runs = 0
    for annotation in annotations:
        segmentation = annotation.get("segmentation")
        for outline in [segmentation] if isinstance(segmentation, Mapping) else _polygons(annotation):
            if isinstance(outline, Mapping):
                found = _from_run_lengths(outline, annotation["id"], shape)
                runs += len(found)
            else:
                # The integers in COCO's JSON may exceed 64 bits.
                found = np.clip(np.reshape(outline, (-1, 2)), -1, np.array(shape[::-1]) + 1).ravel().tolist()
                length += _length(found)
            if runs > bounds.OUTLINE_RUNS or length > bounds.OUTLINE_PIXELS:
                raise SourceError(
                    f"outlines of its unlabelled people have {runs:,} runs and {length:,} pixels or more vs "
                    f"{bounds.OUTLINE_RUNS:,} and {bounds.OUTLINE_PIXELS:,} at most"
                )
            yield found


def _polygons(annotation: Mapping[str, Any]) -> list[list[float]]:
    """Return an annotation's valid polygons, or its box as a polygon if there are none."""
    given = annotation.get("segmentation") or []
    polygons = [polygon[: len(polygon) // 2 * 2] for polygon in given if len(polygon) >= _LEAST_POLYGON]
    if polygons:
        return polygons
    left, top, width, height = annotation["bbox"]
    return [[left, top, left + width, top, left + width, top + height, left, top + height]]


def _length(polygon: list[float]) -> int:
    """Return the number of pixel steps around a polygon, at least one per corner."""
    corners = np.array(polygon).reshape(-1, 2)
    return len(corners) + int(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())


def _drawn(polygon: list[float], shape: tuple[int, int]) -> Runs:
    """Rasterize a polygon by COCO's own rules; return its runs."""
    polygons: Any = [polygon]
    [drawn] = rle.frPyObjects(polygons, *shape)
    return _inside(_uncompressed(drawn["counts"]))


def _from_run_lengths(segmentation: Mapping[str, Any], annotation: int, shape: tuple[int, int]) -> Runs:
    size, counts, pixels = segmentation["size"], segmentation["counts"], shape[0] * shape[1]
    if size != list(shape):
        raise SourceError(
            f"annotation {annotation}: run lengths have the size {shortened(size)}, but the image is {list(shape)}; "
            "the annotation belongs to another image"
        )
    text = counts.encode("ascii", "replace") if isinstance(counts, str) else None
    lengths = np.array(counts, np.int64) if text is None else _uncompressed(text)
    if (lengths < 0).any() or lengths.sum() != pixels:
        raise SourceError(
            f"annotation {annotation}: run lengths add up to {lengths.sum()}, but the image has {pixels} pixels; "
            "correct them"
        )
    return _inside(lengths)


def _inside(lengths: Lengths) -> Runs:
    """Return the foreground runs, int64 (n, 2): first pixel, and the pixel after the last one."""
    ends = np.cumsum(lengths)
    return np.stack([ends - lengths, ends], axis=1)[1::2]


def _uncompressed(text: bytes) -> Lengths:
    """Decode COCO's text form of run lengths: 5 bits per character; from the fourth on, differences to two before.

    This is ``rleFrString`` of pycocotools' maskApi.c, but damaged text never reads out of bounds: it becomes [-1].
    """
    digits = np.frombuffer(text, np.uint8).astype(np.int64) - ord("0")
    last = np.flatnonzero((digits & _GOES_ON) == 0)
    digits = digits[: last[-1] + 1 if len(last) else 0]
    sizes = np.diff(last, prepend=-1)
    if not len(last) or sizes.max() > _MOST_DIGITS or digits.min() < 0:
        return np.array([-1])  # an invalid length
    places = np.arange(len(digits)) - np.repeat(last + 1 - sizes, sizes)
    values = np.add.reduceat((digits & _BITS) << (5 * places), last + 1 - sizes)
    values -= np.where(digits[last] & _NEGATIVE, 1 << (5 * sizes), 0)
    for start in (1, 2):  # the first three values are as they are
        values[start::2] = np.cumsum(values[start::2])
    return values
