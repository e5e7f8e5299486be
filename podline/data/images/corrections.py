"""Applies reviews to the images of a source: other labels, and images that are left out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from podline.data.images.column_file import decoded
from podline.data.images.image_table import Image, ImageTable, write_images
from podline.data.rawfiles import RawFile, raw_file
from podline.plurals import plural

DROP = ""
"""The correction of an image that is not to be used; any other is its label."""
_FILE, _COUNTS, _UNMATCHED = "corrected.arrow", "corrections", "corrections without an image"
_TEXTS, _DIGESTS = ("key", "label", "split", "group", "reason"), ("sha256", "pixels_sha256")


def write_corrected(images: ImageTable, corrections: Mapping[str, str], folder: Path) -> list[RawFile]:
    """Write images as reviews say that they are.

    Args:
        images: as the source says it.
        corrections: the sha256 of an image's pixels → its label, or :data:`DROP`.
        folder: where to.

    Raises:
        StoreError: the folder cannot be written.
    """
    counts = _counted(images, corrections)
    write_images(folder / _FILE, _corrected(images, corrections), {**images.about, _COUNTS: json.dumps(counts)})
    return [raw_file(_FILE, folder / _FILE)]


def correction_counts(images: ImageTable) -> dict[str, int]:
    """Return how many images reviews relabelled and dropped, by a name for what is counted."""
    counts = json.loads(images.about.get(_COUNTS, "{}"))
    return {name: count for name, count in counts.items() if name != _UNMATCHED}


def correction_lines(images: ImageTable) -> list[str]:
    """Return a line if corrections are of images that the source does not have, or not with these settings."""
    lost = json.loads(images.about.get(_COUNTS, "{}")).get(_UNMATCHED, 0)
    return [f"{plural(lost, 'correction')} of reviews match no image: of other images, or another side"] if lost else []


def _counted(images: ImageTable, corrections: Mapping[str, str]) -> dict[str, int]:
    counts, seen = Counter[str](), set[str]()
    for image in _all(images):
        if image.pixels_sha256 in corrections:
            seen.add(image.pixels_sha256)
            label = corrections[image.pixels_sha256]
            if label == DROP:
                counts["dropped by a review"] += 1
            elif label != image.label:
                counts["relabelled by a review"] += 1
    lost = len(corrections) - len(seen)
    return {**counts, **({_UNMATCHED: lost} if lost else {})}


def _corrected(images: ImageTable, corrections: Mapping[str, str]) -> Iterator[Image]:
    for image in _all(images):
        label = corrections.get(image.pixels_sha256) if image.pixels_sha256 else None
        if label is None or image.reason:
            yield image
        elif label == DROP:
            yield image._replace(reason="dropped by a review")
        else:
            yield image._replace(label=label)


def _all(images: ImageTable) -> Iterator[Image]:
    for _, batch in images.batches(*Image._fields):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found = dict(zip(Image._fields, values, strict=True))
            found |= {name: None if found[name] is None else decoded(found[name]) for name in _TEXTS}
            found |= {name: found[name].hex() if any(found[name]) else "" for name in _DIGESTS}
            yield Image(**found)
