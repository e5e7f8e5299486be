"""CIFAR-10 and CIFAR-100 as their authors publish them: Python pickles, or rows of a ``.bin`` file.

Layouts: https://www.cs.toronto.edu/~kriz/cifar.html. Each image is 3,072 bytes: the red, the green and the blue plane
of 32×32 pixels, row by row. Batches may have any number of rows.

A child process parses each pickle once, and writes its images and labels into the cache folder
(:mod:`podline.data.sources.raw_batches`). Rows of a ``.bin`` file are read where they are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from podline.cores import usable_cores
from podline.data import bounds
from podline.data.rawfiles import RawFile, reading
from podline.data.rows import RowBlock, SourceSplit
from podline.data.shown import shortened
from podline.data.sources import class_names
from podline.data.sources.parser_pool import Sandboxes
from podline.data.sources.pickles import REMEDY
from podline.data.sources.pixel_cache import CachedImages, Written, cached_images
from podline.data.sources.raw_batches import MAKER, SIZE, Batch, Label, checked_labels
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.plurals import plural
from podline.sandbox import limits_of
from podline.store import digests
from podline.store.prefetch import in_order

_CHANNELS = 3
IMAGE_SHAPE = (32, 32, _CHANNELS)
_ROWS = 1_000  # of a .bin file that are read at once
_OFFICIAL_ROWS = 10_000  # of each of CIFAR-10's files
_PICKLED, _NAMES = "write_pickled", "read_names"
_FORMAT = 2  # of the files in the cache; another one when they change


@dataclass(frozen=True)
class LabelKind:
    """One label of every image.

    Attributes:
        feature: its name in the records.
        key: its key in a pickled batch.
        column: which byte of a ``.bin`` row it is.
        names: the official class names.
        names_key: the key of the class names in the pickled meta file.
        names_file: the file of class names beside the ``.bin`` files.
    """

    feature: str
    key: str
    column: int
    names: tuple[str, ...]
    names_key: str
    names_file: str


@dataclass(frozen=True)
class Family:
    """What CIFAR-10 or CIFAR-100 is made of: its labels, the files of each split, and the pickled meta file."""

    title: str
    labels: tuple[LabelKind, ...]
    splits: Mapping[str, tuple[str, ...]]
    meta: str

    @property
    def batches(self) -> tuple[str, ...]:
        """The files of all splits; in the binary layout they end in ``.bin``."""
        return tuple(name for names in self.splits.values() for name in names)


CIFAR10 = Family(
    title="CIFAR-10",
    labels=(LabelKind("label", "labels", 0, class_names.CIFAR10, "label_names", "batches.meta.txt"),),
    splits={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    meta="batches.meta",
)
CIFAR100 = Family(
    title="CIFAR-100",
    labels=(
        LabelKind(
            "label", "fine_labels", 1, class_names.CIFAR100_FINE, "fine_label_names", "fine_label_names.txt"
        ),
        LabelKind(
            "coarse_label",
            "coarse_labels",
            0,
            class_names.CIFAR100_COARSE,
            "coarse_label_names",
            "coarse_label_names.txt",
        ),
    ),
    splits={"train": ("train",), "test": ("test",)},
    meta="meta",
)  # fmt: skip

# The drawn sample is CIFAR-10 but for the names of its classes.
_SAMPLE = replace(CIFAR10, title="the sample", labels=(replace(CIFAR10.labels[0], names=class_names.SAMPLE),))
_FAMILIES = {"cifar10": CIFAR10, "cifar100": CIFAR100, "sample": _SAMPLE}


def open_pickled(dataset: str, files: Mapping[str, RawFile], work: Path) -> Source:
    """Return the python layout.

    Args:
        dataset: ``cifar10``, ``cifar100`` or ``sample``.
        files: every batch by name, and the meta file if there is one.
        work: the cache folder for pixels.

    Raises:
        SourceError: a file is not what it should be.
    """
    family = _FAMILIES[dataset]
    with Sandboxes(MAKER) as sandboxes:
        meta = _meta(family, files[family.meta], sandboxes) if family.meta in files else {}
        names = {
            kind.feature: _class_names(meta[kind.names_key], kind, files[family.meta])
            if kind.names_key in meta
            else kind.names
            for kind in family.labels
        }
        read = partial(_pickled, family, work, sandboxes)
        return _source(dataset, family, files, names, lambda name: read(files[name]))


def open_binary(dataset: str, files: Mapping[str, RawFile], _work: Path) -> Source:
    """Return the binary layout.

    Args:
        dataset: ``cifar10``, ``cifar100`` or ``sample``.
        files: every ``.bin`` file by name, and the files of class names that there are.

    Raises:
        SourceError: a file is not what it should be.
    """
    family = _FAMILIES[dataset]
    names = {
        kind.feature: _class_names(_lines(files[kind.names_file]), kind, files[kind.names_file])
        if kind.names_file in files
        else kind.names
        for kind in family.labels
    }
    _refuse_cut(family, files)
    return _source(dataset, family, files, names, lambda name: _binary(family, files[f"{name}.bin"]))


def _refuse_cut(family: Family, files: Mapping[str, RawFile]) -> None:
    """Refuses a file that is shorter than most others of its split: rows have no end mark that a cut would lose.

    The last one may be, as what is left over; not where the others are the official ones, which are all alike.
    """
    for batches in family.splits.values():
        sizes = [files[f"{name}.bin"].bytes for name in batches]
        ((usual, count),) = Counter(sizes).most_common(1)
        official = usual == _OFFICIAL_ROWS * (len(family.labels) + SIZE)
        for name, size in zip(batches, sizes, strict=True):
            if 2 * count > len(batches) and size < usual and (name != batches[-1] or official):
                raise SourceError(
                    f"{files[f'{name}.bin'].shown} is cut short: {size:,} bytes vs {usual:,} of the other batches; "
                    f"{REMEDY}; rows of your own may be spread over the files evenly, with the rest in the last"
                )


def _source(
    dataset: str,
    family: Family,
    files: Mapping[str, RawFile],
    names: dict[str, tuple[str, ...]],
    read_batch: Callable[[str], CachedImages],
) -> Source:
    splits = []
    for split, batch_names in family.splits.items():
        batches = list(in_order(read_batch, batch_names, usable_cores()))
        blocks = tuple(batch.block for batch in batches if batch.block.count)
        if not blocks:
            first = next(iter(files.values())).shown
            raise SourceError(f"{', '.join(batch_names)} beside {first} hold no image: 0 vs 1 at least; {REMEDY}")
        columns = np.concatenate([batch.labels for batch in batches])
        labels = {kind.feature: columns[:, place].copy() for place, kind in enumerate(family.labels)}
        splits.append(SourceSplit(split, IMAGE_SHAPE, blocks, labels))
    main, *others = (kind.feature for kind in family.labels)
    return Source(
        dataset=dataset,
        class_names=names[main],
        files=tuple(file.info for file in files.values()),
        splits=tuple(splits),
        extra_class_names={feature: names[feature] for feature in others},
        raw=tuple(files.values()),
    )


def _binary(family: Family, file: RawFile) -> CachedImages:
    """Return where the images of a ``.bin`` file are, and their labels: rows of the label bytes, then the image."""
    stride = len(family.labels) + SIZE
    if not file.bytes:
        raise SourceError(f"{file.shown} is empty: 0 bytes; {REMEDY}")
    rows, rest = divmod(file.bytes, stride)
    if rest:
        raise SourceError(
            f"{file.shown} is truncated, or no {family.title} in binary layout: "
            f"{file.bytes:,} bytes vs {rows:,} or {rows + 1:,} rows of {stride:,}; {REMEDY}"
        )
    with reading(file.shown), file.path.open("rb") as stream:
        modified = os.fstat(stream.fileno()).st_mtime_ns
        parts = (np.fromfile(stream, np.uint8, _ROWS * stride) for _ in range(0, rows, _ROWS))
        table = np.concatenate([part.reshape(-1, stride)[:, : len(family.labels)].copy() for part in parts])
    labels = [
        checked_labels(table[:, kind.column], rows, len(kind.names), file.shown, kind.key) for kind in family.labels
    ]
    block = RowBlock(file.name, file.place, rows, len(labels), stride, _CHANNELS, modified)
    return CachedImages(block, np.stack(labels, axis=1), IMAGE_SHAPE)


def _pickled(family: Family, work: Path, sandboxes: Sandboxes, file: RawFile) -> CachedImages:
    """Return a batch's images and labels; the child parses it if it is not in the cache."""
    labels = tuple(Label(kind.key, len(kind.names)) for kind in family.labels)

    def parse(folder: Path) -> Written:
        item = (_PICKLED, Batch(file.path, file.shown, family.title, labels), folder)
        with reading(file.shown), sandboxes.lent() as sandbox:
            return sandbox.one(item, limits_of(file.bytes), file.shown)

    key = digests.of_json([_FORMAT, file.name, labels, file.sha256])
    return cached_images(work, key, file.name, parse, planes=_CHANNELS)


def _meta(family: Family, file: RawFile, sandboxes: Sandboxes) -> dict[str, list[str]]:
    _check_class_file(file)
    keys = [kind.names_key for kind in family.labels]
    with reading(file.shown), sandboxes.lent() as sandbox:
        return sandbox.one((_NAMES, file.path, file.shown, keys), limits_of(file.bytes), file.shown)


def _check_class_file(file: RawFile) -> None:
    if file.bytes > bounds.CLASS_FILE_BYTES:
        raise SourceError(
            f"{file.shown} has {file.bytes:,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most for class names; {REMEDY}"
        )


def _lines(file: RawFile) -> list[str]:
    """Return a text file's lines, without empty ones: the official files end in some."""
    _check_class_file(file)
    with reading(file.shown):
        text = file.path.read_bytes().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _class_names(names: Sequence[str], kind: LabelKind, file: RawFile) -> tuple[str, ...]:
    """Return the class names that a source brings, once they are text and as many as there are classes."""
    if len(names) != len(kind.names):
        raise SourceError(f"{file.shown}: {plural(len(names), 'class name')} vs {len(kind.names)} classes; {REMEDY}")
    for name in names:
        problem = class_names.problem_of(name)
        if problem:
            raise SourceError(f"{file.shown}: the class name {shortened(name)} {problem}; {REMEDY}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{file.shown}: two classes are called {twice!r}; {REMEDY}")
    return tuple(names)
