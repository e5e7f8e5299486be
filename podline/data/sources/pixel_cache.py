"""Keeps raw pixels in the cache in one form, whatever file they came in: images one after another, and their labels.

A child process writes them out of an untrusted file. Workers read them by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.rawfiles import listed_files, made_once, raw_file, write_raw_file
from podline.data.rows import RowBlock
from podline.store.contract import explained

PIXELS, RECORDS = "pixels", "records.npz"

Shape = tuple[int, ...]
Written = list[dict[str, Any]]
"""Files with their checksums, as JSON."""


class CachedImages(NamedTuple):
    """Images in the cache.

    Attributes:
        block: where they are.
        labels: whole numbers, (images, kinds of labels).
        shape: (height, width, channels) of each.
    """

    block: RowBlock
    labels: npt.NDArray[Any]
    shape: Shape


def write_images(folder: Path, parts: Iterable[npt.NDArray[np.uint8]], labels: Any) -> Written:
    """Write images into a folder.

    Args:
        folder: an empty one.
        parts: some images each, (n, …) as they are stored, all of one shape; at least one part.
        labels: (images, kinds); looked at when all parts are written.

    Raises:
        StoreError: the folder cannot be written.
    """
    shape: Shape = ()

    def chunks() -> Iterator[memoryview]:
        nonlocal shape
        for part in parts:
            shape = part.shape[1:]
            yield np.ascontiguousarray(part).reshape(-1).data

    pixels = write_raw_file(PIXELS, folder / PIXELS, chunks())
    with explained("write", folder / RECORDS):
        np.savez(folder / RECORDS, labels=np.asarray(labels), shape=np.array(shape))
    return [file.info.model_dump() for file in (pixels, raw_file(RECORDS, folder / RECORDS))]


def cached_images(work: Path, key: str, name: str, write: Callable[[Path], Written], planes: int = 0) -> CachedImages:
    """Return a raw file's images out of the cache.

    Args:
        work: the cache folder.
        key: the checksum of all that the images depend on.
        name: the raw file's short name, for errors and the quarantine.
        write: makes them where they are not there yet, as :func:`write_images` does.
        planes: see :class:`RowBlock`.

    Raises:
        StoreError: the cache folder cannot be written.
    """
    pixels, records = made_once(work, key, lambda folder: listed_files(folder, write(folder)))
    with np.load(str(records.path)) as columns:
        labels, shape = columns["labels"], tuple(columns["shape"].tolist())
    return CachedImages(RowBlock(name, pixels.place, len(labels), planes=planes), labels, shape)
