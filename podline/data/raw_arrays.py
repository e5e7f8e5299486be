"""The contract of raw files with many images of one shape, and how a child process decodes one into the cache.

Child processes import this module and those that read files, so these import neither Arrow nor OpenCV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.decoded_rows import PIXELS, with_checksums
from podline.data.identity import IDENTITY_BYTES, identities_of
from podline.data.rawfiles import RawFile
from podline.data.sandbox.limits import ParseLimits, limits_of
from podline.documents.manifest import USUAL_KIND
from podline.store.contract import explained

COLUMNS = "columns.npz"
"""The name of the file with labels and identities in a folder of the cache, beside the pixels."""


class FilePart(NamedTuple):
    """Some images of a raw file.

    Attributes:
        images: (n, height, width, channels).
        labels: the text of each image's target.
        others: the values of further label features by name, (n,) each.
    """

    images: npt.NDArray[np.uint8]
    labels: Sequence[str]
    others: Mapping[str, npt.NDArray[np.uint8]] = {}


@dataclass(frozen=True)
class Arrays:
    """The raw files of a data set.

    Attributes:
        dataset: name of the data set.
        raw: every raw file, also those without images.
        splits: split → groups of files that are read together; the first file of a group names its images.
        read: reads a group in a child process: returns its parts, given the paths.
        key: all values besides ``read`` and the files' contents that the images depend on, as JSON.
        class_names: class names by number; empty to take those of the training images.
        others: class names of further label features.
        kind: kind of task.
        limits: returns the limits for reading a number of bytes.
        archive: the archive of the raw files, with its official name.
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
    """Write the images of a group of files into an empty folder; runs in a sandbox.

    Raises:
        SourceError: a file is damaged.
        StoreError: the folder cannot be written.
    """
    shape, parts, pixels = (0, 0, 0), list[FilePart](), folder / PIXELS
    with pixels.open("wb") as stream:
        for part in read(*paths):
            images = np.ascontiguousarray(part.images)
            shape = images.shape[1:]
            parts.append(part._replace(images=identities_of(images)))
            with explained("write", pixels):
                stream.write(with_checksums(images).data)
    identities = np.concatenate([np.empty(0, f"S{IDENTITY_BYTES}"), *(part.images for part in parts)])
    labels = np.array([label for part in parts for label in part.labels], np.str_)
    names = parts[0].others if parts else ()
    columns: Any = {name: np.concatenate([part.others[name] for part in parts]) for name in names}
    with explained("write", folder):
        np.savez(folder / COLUMNS, shape=(len(labels), *shape), labels=labels, identities=identities, **columns)


def sides(shape: Sequence[int]) -> str:
    """Return a shape in words, for errors."""
    return " × ".join(map(str, shape)) or "a number"
