"""Parses CIFAR's pickles and MNIST's files in a child process, which writes their images and labels into the cache.

MNIST's format, IDX, is a header of big-endian numbers, then the bytes: http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.sources.pickles import REMEDY, read_pickle
from podline.data.sources.pixel_cache import Written, write_images
from podline.errors import SourceError
from podline.plurals import plural

MAKER = f"{__name__}:parser"
SIZE = 3072
_IDX_SHAPE = (28, 28)
_UNSIGNED_BYTE = 0x08  # third byte of the magic number; the fourth is the number of dimensions
_IDX_REMEDY = "fetch the official file again with `podline data download mnist`"
_LONGEST = 256  # bits of a number that is written out

Labels = npt.NDArray[np.uint8]


class Label(NamedTuple):
    """One label of every image.

    Attributes:
        key: its key in a pickled batch.
        classes: how many there are.
    """

    key: str
    classes: int


class Batch(NamedTuple):
    """A file of images.

    Attributes:
        path: where it is.
        shown: what errors call it.
        title: of its data set.
        labels: of every image.
    """

    path: Path
    shown: str
    title: str
    labels: tuple[Label, ...]


def parser() -> Callable[[tuple[Any, ...]], Any]:
    """Return a function of an item for a :class:`podline.sandbox.Sandbox`: a function of this module, its arguments."""
    functions = {made.__name__: made for made in (write_pickled, write_idx, read_names)}
    return lambda item: functions[item[0]](*item[1:])


def write_pickled(batch: Batch, folder: Path) -> Written:
    """Write the pixels and the labels, uint8 (rows, kinds), of a pickled batch.

    Raises:
        SourceError: it is not what it should be.
    """
    found = read_pickle(batch.path, batch.shown)
    needed = ["data", *(label.key for label in batch.labels)]
    if not isinstance(found, dict) or not all(key in found for key in needed):
        what = f"keys {_listed(found)}" if isinstance(found, dict) else f"a {type(found).__name__}"
        raise SourceError(f"{batch.shown} is no batch of {batch.title}: {what} vs {needed} needed; {REMEDY}")
    data = found["data"]
    if not isinstance(data, np.ndarray):
        raise SourceError(f"{batch.shown}: the data is a {type(data).__name__} vs an array of uint8; {REMEDY}")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != SIZE:
        raise SourceError(
            f"{batch.shown}: the data has shape {data.shape} and dtype {data.dtype} "
            f"vs (rows, {SIZE}) and uint8; {REMEDY}"
        )
    labels = [_pickled_labels(found[label.key], label, len(data), batch.shown) for label in batch.labels]
    return write_images(folder, [data.reshape(-1, 3, 32, 32)], np.stack(labels, axis=1))


def write_idx(images: Batch, labels: Batch, folder: Path) -> Written:
    """Write the pixels and the labels of a pair of MNIST's files.

    Raises:
        SourceError: they are not what they should be.
    """
    pixels, numbers = _idx(images, 3), _idx(labels, 1)
    count, height, width = pixels.shape
    if (height, width) != _IDX_SHAPE:
        raise SourceError(f"{images.shown}: images of {height}×{width} pixels vs 28×28; {_IDX_REMEDY}")
    if count != len(numbers):
        named = plural(len(numbers), "label")
        raise SourceError(f"{images.shown} has {plural(count, 'image')} vs {named} in {labels.shown}; {_IDX_REMEDY}")
    if not count:
        raise SourceError(f"{images.shown} holds no image: 0 vs 1 at least; {_IDX_REMEDY}")
    [label] = labels.labels
    checked = checked_labels(numbers, count, label.classes, labels.shown)
    return write_images(folder, [pixels[..., np.newaxis]], checked[:, np.newaxis])


def read_names(path: Path, shown: str, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the lists of class names that a pickled meta file has, by key.

    Raises:
        SourceError: it is not what it should be.
    """
    meta = read_pickle(path, shown)
    if not isinstance(meta, dict):
        raise SourceError(f"{shown}: a {type(meta).__name__} vs a dictionary of class names; {REMEDY}")
    return {key: _texts(meta[key], shown) for key in keys if key in meta}


def checked_labels(
    values: list[int] | npt.NDArray[Any], rows: int, classes: int, shown: str, key: str = "labels"
) -> Labels:
    """Return labels as uint8, once there is one for every image and each is the number of a class.

    Raises:
        SourceError: they are more or fewer than the images, or one is out of range.
    """
    if len(values) != rows:
        raise SourceError(f"{shown}: {len(values):,} {key} vs {plural(rows, 'image')}; {REMEDY}")
    if rows and not 0 <= min(values) <= max(values) < classes:
        row, value = next((row, int(value)) for row, value in enumerate(values) if not 0 <= value < classes)
        what = str(value) if value.bit_length() < _LONGEST else f"a number of {value.bit_length():,} bits"
        raise SourceError(f"{shown}: {key}[{row}] is {what} vs 0 to {classes - 1}; {REMEDY}")
    return np.array(values, np.uint8)


def _pickled_labels(values: Any, label: Label, rows: int, shown: str) -> Labels:
    """Return a batch's labels out of its pickle: a list of numbers, or an array."""
    numbers = isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1
    if not numbers and (type(values) is not list or not all(type(value) is int for value in values)):
        raise SourceError(f"{shown}: {label.key!r} is not a list of whole numbers; {REMEDY}")
    return checked_labels(values, rows, label.classes, shown, label.key)


def _idx(file: Batch, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return an IDX file's numbers, once the magic number is right and the file has exactly so many bytes."""
    length, data = 4 + 4 * dimensions, np.fromfile(file.path, np.uint8)
    header, magic = data[:length].tobytes(), bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if header[:4] != magic:
        raise SourceError(
            f"{file.shown} is no IDX file of {'images' if dimensions == 3 else 'labels'}: "
            f"magic 0x{header[:4].hex()} vs 0x{magic.hex()}; {_IDX_REMEDY}"
        )
    sizes = np.frombuffer(header[4 : len(header) // 4 * 4], ">u4").tolist()
    expected = length + math.prod(sizes) if len(sizes) == dimensions else length
    if len(data) != expected:
        problem = "is truncated" if len(data) < expected else "has bytes after its end"
        raise SourceError(f"{file.shown} {problem}: {len(data):,} bytes vs {expected:,} by its header; {_IDX_REMEDY}")
    return data[length:].reshape(sizes)


def _texts(values: Any, shown: str) -> list[str]:
    if type(values) is not list or not all(type(value) in (str, bytes) for value in values):
        raise SourceError(f"{shown}: the class names are not a list of texts; {REMEDY}")
    return [value.decode("utf-8", "replace") if type(value) is bytes else value for value in values]


def _listed(batch: dict[Any, Any]) -> list[str]:
    return sorted(str(key)[:40] for key in list(batch)[:8])
