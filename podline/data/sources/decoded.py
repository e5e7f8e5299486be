"""A source of whatever gives images: each raw file is decoded once into the cache folder, and read there by position.

For data sets of one's own whose raw files hold small images in a format that Podline does not know; docs/extending.md
has an example. What is decoded lies under a checksum of the raw file, the data set's name, its version and its code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.records import LABEL
from podline.data.sources.rawfiles import RawFile, made_once, raw_file, reading, write_raw_file
from podline.data.sources.remote import AnyPath, is_remote, open_remote, raw_files
from podline.data.sources.rows import RowBlock, SourceSplit
from podline.data.sources.source import Source
from podline.entry_points import reason
from podline.errors import PodlineError, SourceError
from podline.recipes.datasets import DataSet
from podline.recipes.own_code import of_dataset
from podline.store import digests
from podline.store.contract import explained

Read = Callable[[Path], Iterable[tuple[npt.ArrayLike, int]]]
"""Gives a raw file's images, uint8 (height, width, channels) or (height, width), each with its label, from 0 on."""

Shape = tuple[int, ...]
_PIXELS, _RECORDS = "pixels", "records.npz"


class _Part(NamedTuple):
    """One raw file, decoded."""

    raw: RawFile
    block: RowBlock
    labels: npt.NDArray[np.int64]
    shape: tuple[int, int, int]


def decoded_source(
    dataset: DataSet,
    source: str,
    splits: Mapping[str, Sequence[str]],
    class_names: Sequence[str],
    read: Read,
    work: Path,
) -> Source:
    """Opens a folder of raw files, each of which a function reads.

    Args:
        dataset: what it is.
        source: the folder that holds the files, here or in ``gs://``.
        splits: ``train`` and ``test`` → the names of their files.
        class_names: by label.
        read: gives a file's images with their labels; all images of a data set have one shape.
        work: the cache folder.

    Raises:
        SourceError: a file is missing, cannot be read, or holds what cannot be.
        StoreError: the cache folder cannot be written.
    """
    raw = _raw_files(source, [name for names in splits.values() for name in names], work)
    parts = {
        split: [_decoded(dataset, raw[name], len(class_names), read, work) for name in names]
        for split, names in splits.items()
    }
    _refuse_other_shapes([part for of_split in parts.values() for part in of_split])
    return Source(
        dataset.name,
        tuple(class_names),
        tuple(file.info for file in raw.values()),
        tuple(_split(name, of_split, len(class_names)) for name, of_split in parts.items()),
        raw=tuple(raw.values()),
    )


def _raw_files(source: str, names: Sequence[str], work: Path) -> dict[str, RawFile]:
    """Files of a folder by name, with their checksums."""
    place: AnyPath = open_remote(source) if is_remote(source) else Path(source).expanduser().absolute()
    with reading(str(place)):
        missing = [name for name in names if not (place / name).is_file()]
    if missing:
        raise SourceError(f"{place} is without {', '.join(missing)}; give the folder that holds {', '.join(names)}")

    return raw_files({name: place / name for name in names}, work)


def _decoded(dataset: DataSet, raw: RawFile, classes: int, read: Read, work: Path) -> _Part:
    key = digests.of_json([dataset.name, dataset.version, of_dataset(dataset), classes, raw.sha256])
    pixels, records = made_once(work, key, partial(_decode, raw, classes, read))
    with np.load(str(records.path)) as columns:
        labels, (height, width, channels) = columns["labels"], columns["shape"].tolist()
    block = RowBlock(raw.name, pixels.place, len(labels))
    return _Part(raw, block, labels, (height, width, channels))


def _decode(raw: RawFile, classes: int, read: Read, folder: Path) -> list[RawFile]:
    """Writes a raw file's pixels, and beside them its labels and the shape of every image."""
    labels: list[int] = []
    shapes: list[Shape] = []

    def pixels() -> Iterator[bytes]:
        for image, label in _read(raw, read):
            array = _checked(raw, len(labels), image)
            if not 0 <= label < classes:
                raise SourceError(f"{raw.shown}: image {len(labels)} has the label {label} vs 0 to {classes - 1}")
            if shapes and array.shape != shapes[0]:
                raise SourceError(f"{raw.shown}: image {len(labels)} is {_sides(array.shape)} vs {_sides(shapes[0])}")
            shapes[:] = [array.shape]
            labels.append(label)
            yield array.tobytes()

    written = write_raw_file(_PIXELS, folder / _PIXELS, pixels())
    if not labels:
        raise SourceError(f"{raw.shown} holds no image: 0 vs 1 at least")
    with explained("write", folder / _RECORDS):
        np.savez(folder / _RECORDS, labels=np.array(labels, np.int64), shape=np.array(shapes[0]))
    return [written, raw_file(_RECORDS, folder / _RECORDS)]


def _read(raw: RawFile, read: Read) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """What ``read`` gives; what it raises is about the file."""
    try:
        for image, label in read(Path(str(raw.path))):
            yield np.asarray(image), int(label)
    except (PodlineError, MemoryError):
        raise
    except Exception as error:
        raise SourceError(f"{raw.shown} cannot be read: {reason(error)}; restore the file") from error


def _checked(raw: RawFile, number: int, image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """An image with three dimensions."""
    array = image[..., np.newaxis] if image.ndim == 2 else image
    if array.dtype != np.uint8 or array.ndim != 3 or not math.prod(array.shape):
        found = f"{image.dtype} {_sides(image.shape)}"
        raise SourceError(f"{raw.shown}: image {number} is {found} vs uint8 height × width × channels")
    return array


def _refuse_other_shapes(parts: Sequence[_Part]) -> None:
    first = parts[0]
    for part in parts:
        if part.shape != first.shape:
            found, expected = _sides(part.shape), _sides(first.shape)
            raise SourceError(f"{part.raw.shown}: images are {found} vs {expected} in {first.raw.shown}")


def _split(name: str, parts: Sequence[_Part], classes: int) -> SourceSplit:
    labels = np.concatenate([part.labels for part in parts])
    return SourceSplit(
        name,
        parts[0].shape,
        tuple(part.block for part in parts),
        {LABEL: labels.astype(np.min_scalar_type(classes - 1))},
    )


def _sides(shape: Shape) -> str:
    return " × ".join(map(str, shape)) or "a number"
