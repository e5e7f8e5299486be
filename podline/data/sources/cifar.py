"""CIFAR-10 and CIFAR-100 as their authors publish them: Python pickles, or rows of a ``.bin`` file.

Layouts: https://www.cs.toronto.edu/~kriz/cifar.html. Each image has 3,072 bytes: the red, the green and the blue plane
of 32×32 pixels, row by row. Batches may have any number of rows.

A child process parses each pickle once, and writes its images and labels into the cache folder
(:mod:`podline.data.sources.pickles`). Rows of a ``.bin`` file are read where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podline.cores import usable_cores
from podline.data import bounds
from podline.data.rawfiles import RawFile, reading
from podline.data.rows import CachedImages, RowBlock, SourceSplit, cached_images
from podline.data.shown import shortened
from podline.data.sources import class_names
from podline.data.sources.parser_pool import Sandboxes
from podline.data.sources.pickles import MAKER, REMEDY, ROW, Label, checked_labels
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.plurals import plural
from podline.sandbox import limits_of
from podline.store import digests
from podline.store.prefetch import in_order

_CHANNELS = 3
_IMAGE_SHAPE = (32, 32, _CHANNELS)
_ROWS = 1_000  # rows of a .bin file that are read at once
_OFFICIAL_ROWS = 10_000  # rows of each official file of CIFAR-10
_FORMAT = 3  # version of the cached files' format


class Family(NamedTuple):
    """The files and labels of CIFAR-10 or CIFAR-100.

    Attributes:
        title: its common name.
        labels: the labels of each image; a ``.bin`` row stores their bytes in reverse order before the image.
        splits: the batches of each split; in the binary layout their names end in ``.bin``.
        meta: the pickled file of class names.
    """

    title: str
    labels: tuple[Label, ...]
    splits: Mapping[str, tuple[str, ...]]
    meta: str

    @property
    def batches(self) -> tuple[str, ...]:
        """The batches of all splits."""
        return tuple(name for names in self.splits.values() for name in names)


CIFAR10 = Family(
    "CIFAR-10",
    (Label("label", "labels", class_names.CIFAR10, "batches.meta.txt"),),
    {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    "batches.meta",
)
CIFAR100 = Family(
    "CIFAR-100",
    (
        Label("label", "fine_labels", class_names.CIFAR100_FINE, "fine_label_names.txt"),
        Label("coarse_label", "coarse_labels", class_names.CIFAR100_COARSE, "coarse_label_names.txt"),
    ),
    {"train": ("train",), "test": ("test",)},
    "meta",
)
# The drawn sample is CIFAR-10 with other class names.
_SAMPLE = CIFAR10._replace(title="the sample", labels=(CIFAR10.labels[0]._replace(names=class_names.SAMPLE),))
_FAMILIES = {"cifar10": CIFAR10, "cifar100": CIFAR100, "sample": _SAMPLE}


def open_pickled(dataset: str, files: Mapping[str, RawFile], work: Path) -> Source:
    """Open the python layout; see ``podline.data.sources.opening.Layout.open``."""
    family = _FAMILIES[dataset]
    with Sandboxes(MAKER) as sandboxes:
        meta = _meta(family, files[family.meta], sandboxes) if family.meta in files else {}
        names = {
            kind.feature: _class_names(meta.get(kind.names_key), kind, files.get(family.meta)) for kind in family.labels
        }
        read = partial(_pickled, family, work, sandboxes)
        return _source(dataset, family, files, names, lambda name: read(files[name]))


def open_binary(dataset: str, files: Mapping[str, RawFile], _work: Path) -> Source:
    """Open the binary layout; see ``podline.data.sources.opening.Layout.open``."""
    family, names = _FAMILIES[dataset], {}
    for kind in family.labels:
        file = files.get(kind.names_file)
        names[kind.feature] = _class_names(_lines(file) if file else None, kind, file)
    _refuse_cut(family, files)
    return _source(dataset, family, files, names, lambda name: _binary(family, files[f"{name}.bin"]))


def _refuse_cut(family: Family, files: Mapping[str, RawFile]) -> None:
    """Refuse a file that is shorter than most others of its split, since rows have no end mark.

    Only the last file may be shorter, as the remainder, unless the others have the official size.
    """
    for batches in family.splits.values():
        sizes = [files[f"{name}.bin"].bytes for name in batches]
        ((usual, count),) = Counter(sizes).most_common(1)
        official = usual == _OFFICIAL_ROWS * (len(family.labels) + ROW)
        for name, size in zip(batches, sizes, strict=True):
            if 2 * count > len(batches) and size < usual and (name != batches[-1] or official):
                raise SourceError(
                    f"{files[f'{name}.bin'].path} is cut short: {size:,} bytes vs {usual:,} of the other batches; "
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
            first = next(iter(files.values())).path
            raise SourceError(f"{', '.join(batch_names)} beside {first} hold no image: 0 vs 1 at least; {REMEDY}")
        columns = np.concatenate([batch.labels for batch in batches])
        labels = {kind.feature: columns[:, place].copy() for place, kind in enumerate(family.labels)}
        splits.append(SourceSplit(split, _IMAGE_SHAPE, blocks, labels))
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
    """Return the places of a ``.bin`` file's images, and their labels; a row is the label bytes and the image."""
    kinds = len(family.labels)
    stride = kinds + ROW
    if not file.bytes:
        raise SourceError(f"{file.path} is empty: 0 bytes; {REMEDY}")
    rows, rest = divmod(file.bytes, stride)
    if rest:
        raise SourceError(
            f"{file.path} is truncated, or no {family.title} in binary layout: "
            f"{file.bytes:,} bytes vs {rows:,} or {rows + 1:,} rows of {stride:,}; {REMEDY}"
        )
    with reading(file.path), file.path.open("rb") as stream:
        parts = (np.fromfile(stream, np.uint8, _ROWS * stride) for _ in range(0, rows, _ROWS))
        table = np.concatenate([part.reshape(-1, stride)[:, kinds - 1 :: -1].copy() for part in parts])
    labels = [checked_labels(table[:, at], rows, kind, file.path) for at, kind in enumerate(family.labels)]
    block = RowBlock(file.name, file.place, rows, kinds, stride, _CHANNELS, file.modified)
    return CachedImages(block, np.stack(labels, axis=1), _IMAGE_SHAPE)


def _pickled(family: Family, work: Path, sandboxes: Sandboxes, file: RawFile) -> CachedImages:
    """Return a batch's images and labels; a child process parses the batch if it is not cached."""

    def parse(folder: Path) -> None:
        with reading(file.path), sandboxes.lent() as sandbox:
            sandbox.one(
                ("write_batch", file.path, family.title, family.labels, folder), limits_of(file.bytes), file.place
            )

    key = digests.of_json([_FORMAT, file.name, family.labels, file.sha256])
    return cached_images(work, key, file.name, parse, planes=_CHANNELS)


def _meta(family: Family, file: RawFile, sandboxes: Sandboxes) -> dict[str, list[str]]:
    _check_class_file(file)
    keys = [kind.names_key for kind in family.labels]
    with reading(file.path), sandboxes.lent() as sandbox:
        return sandbox.one(("read_names", file.path, keys), limits_of(file.bytes), file.place)


def _check_class_file(file: RawFile) -> None:
    if file.bytes > bounds.CLASS_FILE_BYTES:
        raise SourceError(
            f"{file.path} has {file.bytes:,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most for class names; {REMEDY}"
        )


def _lines(file: RawFile) -> list[str]:
    """Return the non-empty lines of a text file; official files end with empty lines."""
    _check_class_file(file)
    with reading(file.path):
        text = file.path.read_bytes().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _class_names(names: Sequence[str] | None, kind: Label, file: RawFile | None) -> tuple[str, ...]:
    """Check that a source has one class name per class, as text, and return the names."""
    if names is None or file is None:
        return kind.names
    if len(names) != len(kind.names):
        raise SourceError(f"{file.path}: {plural(len(names), 'class name')} vs {len(kind.names)} classes; {REMEDY}")
    for name in names:
        problem = class_names.problem_of(name)
        if problem:
            raise SourceError(f"{file.path}: the class name {shortened(name)} {problem}; {REMEDY}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{file.path}: two classes are called {twice!r}; {REMEDY}")
    return tuple(names)
