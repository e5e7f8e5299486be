"""CIFAR-10 and CIFAR-100 as their authors publish them: Python pickles, or rows of a ``.bin`` file.

Layouts: https://www.cs.toronto.edu/~kriz/cifar.html. Each image has 3,072 bytes: the red, the green and the blue plane
of 32×32 pixels, row by row. Batches may have any number of rows.

A child process reads each batch once; :mod:`podline.data.sources.pickles` parses the pickles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.base.errors import SourceError
from podline.base.plurals import plural
from podline.data import bounds
from podline.data.raw_arrays import Arrays, FilePart
from podline.data.rawfiles import RawFile, reading
from podline.data.sandbox.limits import limits_of
from podline.data.sandbox.pool import Sandbox
from podline.data.shown import shortened
from podline.data.sources import class_names
from podline.data.sources.pickles import REMEDY, ROW, Label, checked_labels, read_batch, read_names

_CHANNELS, _SIDES = 3, (32, 32)
_OFFICIAL_ROWS = 10_000  # rows of each official file of CIFAR-10
_FORM = 1  # version of this module's arrays


class Family(NamedTuple):
    """The files and labels of CIFAR-10 or CIFAR-100.

    Attributes:
        title: common name of the data set.
        labels: the labels of each image; a ``.bin`` row stores the labels' bytes in reverse order before the image.
        splits: split → names of its batches; in the binary layout ``.bin`` is appended to the names.
        meta: the pickled file of class names.
    """

    title: str
    labels: tuple[Label, ...]
    splits: Mapping[str, tuple[str, ...]]
    meta: str

    @property
    def batches(self) -> tuple[str, ...]:
        """The names of the published files of all splits, which CIFAR calls batches."""
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
# The synthetic sample has the layout of CIFAR-10 and other class names.
_SAMPLE = CIFAR10._replace(title="the sample", labels=(CIFAR10.labels[0]._replace(names=class_names.SAMPLE),))
_FAMILIES = {"cifar10": CIFAR10, "cifar100": CIFAR100, "sample": _SAMPLE}


def of_pickles(dataset: str, files: Mapping[str, RawFile], sandbox: Sandbox) -> Arrays:
    """Describe a source in python layout; see ``podline.data.sources.opening.PublishedForm.arrays``."""
    family = _FAMILIES[dataset]
    meta = _meta(family, files[family.meta], sandbox) if family.meta in files else {}
    labels = [_named(label, meta.get(label.names_key), files.get(family.meta)) for label in family.labels]
    return _arrays(dataset, files, labels, "", _read_pickled)


def of_binaries(dataset: str, files: Mapping[str, RawFile], _sandbox: Sandbox) -> Arrays:
    """Describe a source in binary layout; see ``podline.data.sources.opening.PublishedForm.arrays``."""
    family, labels = _FAMILIES[dataset], list[Label]()
    for label in family.labels:
        file = files.get(label.names_file)
        labels.append(_named(label, _lines(file) if file else None, file))
    _refuse_truncated(family, files)
    return _arrays(dataset, files, labels, ".bin", _read_binary)


def _refuse_truncated(family: Family, files: Mapping[str, RawFile]) -> None:
    """Refuse a file that is shorter than most others of its split, since nothing in a file shows that rows are missing.

    Only the last file, with the remainder, may be shorter, unless the others have the official size.
    """
    for batches in family.splits.values():
        sizes = [files[f"{name}.bin"].bytes for name in batches]
        ((usual, count),) = Counter(sizes).most_common(1)
        official = usual == _OFFICIAL_ROWS * (len(family.labels) + ROW)
        for name, size in zip(batches, sizes, strict=True):
            if 2 * count > len(batches) and size < usual and (name != batches[-1] or official):
                raise SourceError(
                    f"{files[f'{name}.bin'].path} is cut short: {size:,} bytes vs {usual:,} of the other batches; "
                    f"{REMEDY}; if the rows are your own, give each file but the last the same number of rows"
                )


def _arrays(
    dataset: str,
    files: Mapping[str, RawFile],
    labels: Sequence[Label],
    ending: str,
    read: Callable[[str, Sequence[Label], Path], list[FilePart]],
) -> Arrays:
    family, (main, *others) = _FAMILIES[dataset], labels
    return Arrays(
        dataset,
        tuple(files.values()),
        {split: [(files[f"{name}{ending}"],) for name in names] for split, names in family.splits.items()},
        partial(read, family.title, labels),
        key=[_FORM],
        class_names=main.names,
        others={label.feature: label.names for label in others},
    )


def _read_pickled(title: str, labels: Sequence[Label], path: Path) -> list[FilePart]:
    return [_part(*read_batch(path, title, labels), labels)]


def _read_binary(title: str, labels: Sequence[Label], path: Path) -> list[FilePart]:
    """Return the images of a ``.bin`` file, whose rows are the label bytes and the image."""
    kinds, size = len(labels), path.stat().st_size
    stride = kinds + ROW
    if not size:
        raise SourceError(f"{path} is empty: 0 bytes; {REMEDY}")
    rows, rest = divmod(size, stride)
    if rest:
        raise SourceError(
            f"{path} is truncated, or not a file of {title} in binary layout: "
            f"{size:,} bytes vs {rows:,} or {rows + 1:,} rows of {stride:,} bytes; {REMEDY}"
        )
    table = np.memmap(path, np.uint8, "r").reshape(rows, stride)
    checked = [checked_labels(table[:, kinds - 1 - at], rows, label, path) for at, label in enumerate(labels)]
    return [_part(table[:, kinds:], np.stack(checked, axis=1), labels)]


def _part(planes: npt.NDArray[np.uint8], columns: npt.NDArray[np.uint8], labels: Sequence[Label]) -> FilePart:
    images = planes.reshape(len(planes), _CHANNELS, *_SIDES).transpose(0, 2, 3, 1)
    texts = np.array(labels[0].names, object)[columns[:, 0]].tolist()
    return FilePart(images, texts, {label.feature: columns[:, at] for at, label in enumerate(labels) if at})


def _meta(family: Family, file: RawFile, sandbox: Sandbox) -> dict[str, list[str]]:
    _check_class_file(file)
    keys = [label.names_key for label in family.labels]
    with reading(file.path):
        return sandbox.one((read_names, file.path, keys), limits_of(file.bytes), str(file.path))


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


def _named(label: Label, names: Sequence[str] | None, file: RawFile | None) -> Label:
    """Check that a source has one class name per class, as text, and return the label with these names."""
    if names is None or file is None:
        return label
    if len(names) != len(label.names):
        raise SourceError(f"{file.path}: {plural(len(names), 'class name')} vs {len(label.names)} classes; {REMEDY}")
    for name in names:
        problem = class_names.problem_of(name)
        if problem:
            raise SourceError(f"{file.path}: the class name {shortened(name)} {problem}; {REMEDY}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{file.path}: two classes are called {twice!r}; {REMEDY}")
    return label._replace(names=tuple(names))
