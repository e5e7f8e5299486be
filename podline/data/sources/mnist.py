"""Opens MNIST in its IDX format: a header of big-endian numbers, then the bytes.

http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.plurals import plural
from podline.data.raw_arrays import Arrays, FilePart
from podline.data.rawfiles import RawFile
from podline.data.sandbox.pool import Sandbox
from podline.data.sources import class_names
from podline.data.sources.pickles import Label, checked_labels

SPLITS: Mapping[str, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_SIDES = (28, 28)
_FORM = 1  # version of this module's arrays
_UNSIGNED_BYTE = 0x08  # third byte of the magic number; the fourth is the number of dimensions
_REMEDY = "fetch the official file again with `podline data download mnist`"


def of_mnist(dataset: str, files: Mapping[str, RawFile], _sandbox: Sandbox) -> Arrays:
    """Describe MNIST's four files; see ``podline.data.sources.opening.PublishedForm.arrays``."""
    splits = {split: [tuple(files[name] for name in names)] for split, names in SPLITS.items()}
    return Arrays(dataset, tuple(files.values()), splits, _read, [_FORM], class_names.MNIST)


def _read(images: Path, labels: Path) -> list[FilePart]:
    """Return the images and labels of two IDX files."""
    start, (count, *sides) = _header(images, 3)
    if tuple(sides) != _SIDES:
        found = "×".join(map(str, sides))
        raise SourceError(f"{images} has images of {found} pixels vs 28×28; {_REMEDY}")
    first, (numbers,) = _header(labels, 1)
    if count != numbers:
        named = plural(numbers, "label")
        raise SourceError(f"{images} has {plural(count, 'image')} vs {named} in {labels}; {_REMEDY}")
    if not count:
        raise SourceError(f"{images} has no images, expected at least 1; {_REMEDY}")
    values: npt.NDArray[np.uint8] = np.fromfile(labels, np.uint8, offset=first)
    checked_labels(values, count, Label("label", "labels", class_names.MNIST), labels)
    pixels = np.memmap(images, np.uint8, "r", start).reshape(count, *_SIDES, 1)
    return [FilePart(pixels, np.array(class_names.MNIST, object)[values].tolist())]


def _header(path: Path, dimensions: int) -> tuple[int, list[int]]:
    """Return the position after an IDX file's header, and its sizes; check the file's length."""
    length, magic = 4 + 4 * dimensions, bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    with path.open("rb") as stream:
        header, size = stream.read(length), path.stat().st_size
    if header[:4] != magic:
        raise SourceError(
            f"{path} is not an IDX file of {'images' if dimensions == 3 else 'labels'}: "
            f"magic number 0x{header[:4].hex()} vs 0x{magic.hex()}; {_REMEDY}"
        )
    sizes = np.frombuffer(header[4 : len(header) // 4 * 4], ">u4").tolist()
    expected = length + math.prod(sizes) if len(sizes) == dimensions else length
    if size != expected:
        problem = "is truncated" if size < expected else "has bytes after its end"
        raise SourceError(f"{path} {problem}: {size:,} bytes vs {expected:,} by its header; {_REMEDY}")
    return length, sizes
