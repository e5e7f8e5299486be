"""Describes raw files that contain many images of one shape, and decodes them into the cache in a child process.

Child processes import this module and the modules that read files, so these modules import neither Arrow nor OpenCV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.decoded_rows import PIXELS, with_checksums
from podline.data.identity import IDENTITY_BYTES, identities_of
from podline.data.rawfiles import RawFile, reading
from podline.data.sandbox.limits import ParseLimits, limits_of
from podline.documents.manifest import USUAL_KIND
from podline.store.contract import explained

COLUMNS = "columns.npz"
"""The name of the file with shape, labels and identities in a folder of the cache, beside the pixels."""

_ROWS = 1_000  # images that are copied and hashed at a time


class FilePart(NamedTuple):
    """Some images of a raw file.

    Attributes:
        images: uint8 (n, height, width, channels).
        labels: the text of each image's target, n texts.
        others: name of a further label feature → class numbers, uint8 (n,).
    """

    images: npt.NDArray[np.uint8]
    labels: Sequence[str]
    others: Mapping[str, npt.NDArray[np.uint8]] = {}


@dataclass(frozen=True)
class Arrays:
    """The raw files of a data set.

    Attributes:
        dataset: name of the data set.
        raw: all raw files, including files without images.
        splits: split → groups of files that are read together; images are named after the first file of their group.
        read: a function that a child process calls with the paths of a group, and that returns the images in parts.
        key: all values on which the images depend besides ``read`` and the files' contents; JSON-compatible.
        class_names: class names by number; empty to use the labels of the training images.
        others: name of a further label feature → class names by number.
        kind: kind of task.
        limits: a function that returns the limits for reading a number of bytes.
        archive: the archive of the raw files, with its official name; None if they were not in an archive.
    """

    dataset: str
    raw: tuple[RawFile, ...]
    splits: Mapping[str, Sequence[tuple[RawFile, ...]]]
    read: Callable[..., Iterable[FilePart]]
    key: Sequence[object]
    class_names: tuple[str, ...] = ()
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kind: str = USUAL_KIND
    limits: Callable[[int], ParseLimits] = limits_of
    archive: RawFile | None = None


def write_parts(read: Callable[..., Iterable[FilePart]], paths: Sequence[Path], folder: Path) -> None:
    """Read a group of files, and write pixels, labels and identities into an empty folder; runs in a sandbox.

    Raises:
        SourceError: a file is damaged or cannot be read.
        StoreError: the folder cannot be written.
    """
    shape, pixels, others = (0, 0, 0), folder / PIXELS, list[Mapping[str, npt.NDArray[np.uint8]]]()
    labels, identities = list[str](), [np.empty(0, f"S{IDENTITY_BYTES}")]

    def parts() -> Iterator[FilePart]:
        with reading(paths[0]):
            yield from read(*paths)

    with explained("write", pixels), pixels.open("wb") as stream:
        for part in parts():
            shape = part.images.shape[1:]
            labels.extend(part.labels)
            others.append(part.others)
            for first in range(0, len(part.images), _ROWS):
                images = np.ascontiguousarray(part.images[first : first + _ROWS])
                identities.append(identities_of(images))
                stream.write(with_checksums(images).data)
    columns: Any = {name: np.concatenate([each[name] for each in others]) for name in (others[0] if others else ())}
    columns |= {"labels": np.array(labels, np.str_), "identities": np.concatenate(identities)}
    with explained("write", folder):
        np.savez(folder / COLUMNS, shape=(len(labels), *shape), **columns)


def sides(shape: Sequence[int]) -> str:
    """Return a shape as text for errors, such as ``32 × 32 × 3``, or ``a number`` for the empty shape."""
    return " × ".join(map(str, shape)) or "a number"
