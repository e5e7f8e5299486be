"""MNIST in its own format, IDX, gzipped or not.

A gzipped file is unpacked into the cache folder first; its checksum is that of the unpacked content, so gzipped and
plain files are the same source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from podline.data.rawfiles import RawFile, made_once, reading
from podline.data.rows import SourceSplit
from podline.data.sources import class_names
from podline.data.sources.archives import GZIP_MAGIC, in_child
from podline.data.sources.pixel_cache import Written, cached_images
from podline.data.sources.raw_batches import MAKER, Batch, Label
from podline.data.sources.source import Source
from podline.sandbox import Sandbox, limits_of
from podline.store import digests

IMAGE_SHAPE = (28, 28, 1)
SPLITS: Mapping[str, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_FORMAT = "idx 1"  # of the files in the cache; another one when they change


def spellings(name: str) -> tuple[str, ...]:
    """Return the file names under which an official file is found: with a dot before ``idx``, ``.gz``, or both."""
    dotted = name.replace("-idx", ".idx")
    return (name, dotted, f"{name}.gz", f"{dotted}.gz")


def open_mnist(dataset: str, files: Mapping[str, RawFile], work: Path) -> Source:
    """Return the four files as a source.

    Args:
        dataset: what the source is called.
        files: the files by official name, gzipped or not: their first bytes say which, not their names.
        work: the cache folder for unpacked files.

    Raises:
        SourceError: a file is not what it should be.
    """
    plain = {name: _plain(file, work) for name, file in files.items()}
    with Sandbox(MAKER) as sandbox:
        splits = tuple(
            _split(split, plain[images], plain[labels], work, sandbox) for split, (images, labels) in SPLITS.items()
        )
    infos = tuple(file.info for file in plain.values())
    return Source(dataset, class_names.MNIST, infos, splits, raw=tuple(plain.values()))


def _plain(file: RawFile, work: Path) -> RawFile:
    """Return a file as it is, or unpacked."""
    path = file.path
    with reading(path), path.open("rb") as stream:
        if stream.read(2) != GZIP_MAGIC:
            return file
    (plain,) = made_once(work, file.sha256, lambda folder: in_child("decompress", path, file.name, folder))
    return replace(plain, shown=file.shown)


def _split(name: str, images: RawFile, labels: RawFile, work: Path, sandbox: Sandbox) -> SourceSplit:
    classes = (Label("labels", len(class_names.MNIST)),)

    def parse(folder: Path) -> Written:
        pair = [Batch(file.path, file.shown, "MNIST", classes) for file in (images, labels)]
        with reading(images.shown):
            return sandbox.one(("write_idx", *pair, folder), limits_of(images.bytes + labels.bytes), images.shown)

    key = digests.of_json([_FORMAT, images.name, images.sha256, labels.sha256])
    found = cached_images(work, key, images.name, parse)
    return SourceSplit(name, IMAGE_SHAPE, (found.block,), {"label": found.labels[:, 0]})
