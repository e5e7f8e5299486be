"""Looks up the size and the format of images' files, which no record holds, in what this machine's conversions keep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.images.decoded import IMAGES
from podline.data.images.image_table import ImageTable
from podline.data.rawfiles import unpacked
from podline.data.record_table import DIGEST_BYTES
from podline.datasets.fingerprint import source_cache
from podline.store.contract import Store


class SourceFacts(NamedTuple):
    """Facts about some images' files.

    Attributes:
        pixels: width times height of each, (n,).
        formats: how each name ends, as ``.jpg``.
    """

    pixels: npt.NDArray[np.int64]
    formats: list[str]


def source_facts(store: Store, keys: npt.NDArray[np.bytes_]) -> SourceFacts | None:
    """Return what is known of images' files; None if this machine did not convert one of them.

    Args:
        store: that they were converted into.
        keys: the beginnings of the sha256 of the files.
    """
    pixels, formats = np.full(len(keys), -1, np.int64), [""] * len(keys)
    for folder in unpacked(source_cache(store)):
        if not (folder / IMAGES).exists() or (pixels >= 0).all():
            continue
        images = ImageTable(folder / IMAGES)
        numbers = images.by_checksum(images.without_reason())
        [checksums] = images.gather(numbers, "sha256")
        known = checksums.astype(f"S{DIGEST_BYTES}")
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = np.flatnonzero((known[at] == keys) & (pixels < 0)) if len(known) else np.empty(0, np.int64)
        mine, back = np.unique(numbers[at[found]], return_inverse=True)
        width, height = images.gather(mine, "width", "height")
        endings = [f".{name.rpartition('.')[2].lower()}" for _, (name,) in images.some(mine, "key")]
        pixels[found] = (width.astype(np.int64) * height)[back]
        for place, number in zip(found.tolist(), back.tolist(), strict=True):
            formats[place] = endings[number].replace(".jpeg", ".jpg")
    return SourceFacts(pixels, formats) if (pixels >= 0).all() else None
