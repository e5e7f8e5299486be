"""Opens MNIST in its IDX format: a header of big-endian numbers, then the bytes, which are read at their place.

http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.rawfiles import RawFile, reading
from podline.data.rows import RowBlock, SourceSplit
from podline.data.sources import class_names
from podline.data.sources.pickles import Label, checked_labels
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.plurals import plural

SPLITS: Mapping[str, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_SIDES = (28, 28)
_UNSIGNED_BYTE = 0x08  # third byte of the magic number; the fourth is the number of dimensions
_REMEDY = "fetch the official file again with `podline data download mnist`"


def open_mnist(dataset: str, files: Mapping[str, RawFile], _work: Path) -> Source:
    """Open the four files; see ``podline.data.sources.opening.Layout.open``."""
    splits = tuple(_split(split, files[images], files[labels]) for split, (images, labels) in SPLITS.items())
    infos = tuple(file.info for file in files.values())
    return Source(dataset, class_names.MNIST, infos, splits, raw=tuple(files.values()))


def _split(name: str, images: RawFile, labels: RawFile) -> SourceSplit:
    start, (count, *sides) = _header(images, 3)
    if tuple(sides) != _SIDES:
        found = "×".join(map(str, sides))
        raise SourceError(f"{images.path}: images of {found} pixels vs 28×28; {_REMEDY}")
    first, (numbers,) = _header(labels, 1)
    if count != numbers:
        named = plural(numbers, "label")
        raise SourceError(f"{images.path} has {plural(count, 'image')} vs {named} in {labels.path}; {_REMEDY}")
    if not count:
        raise SourceError(f"{images.path} holds no image: 0 vs 1 at least; {_REMEDY}")
    with reading(labels.path):
        values: npt.NDArray[np.uint8] = np.fromfile(labels.path, np.uint8, offset=first)
    column = checked_labels(values, count, Label("label", "labels", class_names.MNIST), labels.path)
    block = RowBlock(images.name, images.place, count, start, modified=images.modified)
    return SourceSplit(name, (*_SIDES, 1), (block,), {"label": column})


def _header(file: RawFile, dimensions: int) -> tuple[int, list[int]]:
    """Return the position after an IDX file's header, and its sizes; check the file's length."""
    length, magic = 4 + 4 * dimensions, bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    with reading(file.path), file.path.open("rb") as stream:
        header = stream.read(length)
    if header[:4] != magic:
        raise SourceError(
            f"{file.path} is not an IDX file of {'images' if dimensions == 3 else 'labels'}: "
            f"magic 0x{header[:4].hex()} vs 0x{magic.hex()}; {_REMEDY}"
        )
    sizes = np.frombuffer(header[4 : len(header) // 4 * 4], ">u4").tolist()
    expected = length + math.prod(sizes) if len(sizes) == dimensions else length
    if file.bytes != expected:
        problem = "is truncated" if file.bytes < expected else "has bytes after its end"
        raise SourceError(f"{file.path} {problem}: {file.bytes:,} bytes vs {expected:,} by its header; {_REMEDY}")
    return length, sizes
