"""MNIST in its own format, IDX: a header of big-endian numbers, then the bytes.

The format: http://yann.lecun.com/exdb/mnist/. A gzipped file is unpacked into the cache folder first, so that images
can be mapped; its checksum is that of the unpacked content, so gzipped and plain files are the same source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from podline.data.sources import class_names
from podline.data.sources.archives import GZIP_MAGIC, in_child
from podline.data.sources.cifar_batches import checked_labels
from podline.data.sources.rawfiles import RawFile, made_once, reading
from podline.data.sources.rows import RowBlock, SourceSplit
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.plurals import plural

IMAGE_SHAPE = (28, 28, 1)
SPLITS: Mapping[str, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_UNSIGNED_BYTE = 0x08  # third byte of the magic number; the fourth is the number of dimensions
_REMEDY = "fetch the official file again with `podline data download mnist`"


def spellings(name: str) -> tuple[str, ...]:
    """The file names under which an official file is found: with a dot before ``idx``, with ``.gz``, with both."""
    dotted = name.replace("-idx", ".idx")
    return (name, dotted, f"{name}.gz", f"{dotted}.gz")


def open_mnist(dataset: str, files: Mapping[str, RawFile], work: Path) -> Source:
    """The four files as a source.

    Args:
        dataset: what the source is called.
        files: the files by official name, gzipped or not: their first bytes say which, not their names.
        work: the cache folder for unpacked files.

    Raises:
        SourceError: a file is not what it should be.
    """
    plain = {name: _plain(file, work) for name, file in files.items()}
    splits = tuple(_split(split, plain[images], plain[labels]) for split, (images, labels) in SPLITS.items())
    infos = tuple(file.info for file in plain.values())
    return Source(dataset, class_names.MNIST, infos, splits, raw=tuple(plain.values()))


def _plain(file: RawFile, work: Path) -> RawFile:
    """A file as it is, or unpacked."""
    path = file.path
    with reading(path), path.open("rb") as stream:
        if stream.read(2) != GZIP_MAGIC:
            return file
    (plain,) = made_once(work, file.sha256, lambda folder: in_child("decompress", path, file.name, folder))
    return replace(plain, shown=file.shown)


def _split(name: str, images: RawFile, labels: RawFile) -> SourceSplit:
    count, height, width = _dimensions(images, 3)
    if (height, width, 1) != IMAGE_SHAPE:
        raise SourceError(f"{images.shown}: images of {height}×{width} pixels vs 28×28; {_REMEDY}")
    (label_count,) = _dimensions(labels, 1)
    if count != label_count:
        named = plural(label_count, "label")
        raise SourceError(f"{images.shown} has {plural(count, 'image')} vs {named} in {labels.shown}; {_REMEDY}")
    if not count:
        raise SourceError(f"{images.shown} holds no image: 0 vs 1 at least; {_REMEDY}")
    with reading(labels.shown):
        values = np.frombuffer(labels.path.read_bytes(), np.uint8, offset=8)
        modified = images.path.stat().st_mtime_ns
    block = RowBlock(images.name, images.place, count, offset=16, modified=modified)
    return SourceSplit(
        name, IMAGE_SHAPE, (block,), {"label": checked_labels(values, count, len(class_names.MNIST), labels.shown)}
    )


def _dimensions(file: RawFile, dimensions: int) -> tuple[int, ...]:
    """The sizes in an IDX header, once the magic number is right and the file has exactly so many bytes."""
    length = 4 + 4 * dimensions
    with reading(file.shown), file.path.open("rb") as stream:
        header = stream.read(length)
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if header[:4] != magic:
        raise SourceError(
            f"{file.shown} is no IDX file of {'images' if dimensions == 3 else 'labels'}: "
            f"magic 0x{header[:4].hex()} vs 0x{magic.hex()}; {_REMEDY}"
        )
    sizes = tuple(int(size) for size in np.frombuffer(header[4 : len(header) // 4 * 4], ">u4"))
    expected = length + math.prod(sizes) if len(sizes) == dimensions else length
    if file.bytes != expected:
        problem = "is truncated" if file.bytes < expected else "has bytes after its end"
        raise SourceError(f"{file.shown} {problem}: {file.bytes:,} bytes vs {expected:,} by its header; {_REMEDY}")
    return sizes
