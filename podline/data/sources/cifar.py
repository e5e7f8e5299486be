"""CIFAR-10 and CIFAR-100 as their authors publish them: Python pickles, or rows of a ``.bin`` file.

Layouts: https://www.cs.toronto.edu/~kriz/cifar.html. Each image is 3,072 bytes: the red, the green and the blue plane
of 32×32 pixels, row by row. Batches may have any number of rows.

The pixels stay in the raw file and are mapped from there. Where a pickle holds them in some other form (Python 3 wrote
its bytes as text, say), they are written out once, as plain bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from podline.data.sources import bounds, class_names
from podline.data.sources.pickled_arrays import PickledArray, Span
from podline.data.sources.pickles import read_pickle
from podline.data.sources.rawfiles import RawFile, made_once, reading, write_raw_file
from podline.data.sources.rows import RowBlock, SourceSplit
from podline.data.sources.shown import shortened
from podline.data.sources.source import Source
from podline.errors import SourceError
from podline.plurals import plural

IMAGE_SHAPE = (32, 32, 3)
_PIXELS = 3072
_OFFICIAL_ROWS = 10_000  # of each of CIFAR-10's files
_REMEDY = "unpack the official archive again, or fetch it with `podline data download`"

Labels = npt.NDArray[np.uint8]


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
    """The python layout.

    Args:
        dataset: ``cifar10``, ``cifar100`` or ``sample``.
        files: every batch by name, and the meta file if there is one.
        work: the cache folder for pixels that cannot be mapped in place.

    Raises:
        SourceError: a file is not what it should be.
    """
    family = _FAMILIES[dataset]
    meta = _meta(files[family.meta]) if family.meta in files else {}
    names = {
        kind.feature: _class_names(meta[kind.names_key], kind, files[family.meta])
        if kind.names_key in meta
        else kind.names
        for kind in family.labels
    }
    return _source(dataset, family, files, names, lambda name: _pickled_batch(family, files[name], work))


def open_binary(dataset: str, files: Mapping[str, RawFile]) -> Source:
    """The binary layout.

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
    return _source(dataset, family, files, names, lambda name: _binary_batch(family, files[f"{name}.bin"]))


def _refuse_cut(family: Family, files: Mapping[str, RawFile]) -> None:
    """Refuses a file that is shorter than most others of its split: rows have no end mark that a cut would lose.

    The last one may be, as what is left over; not where the others are the official ones, which are all alike.
    """
    for batches in family.splits.values():
        sizes = [files[f"{name}.bin"].bytes for name in batches]
        ((usual, count),) = Counter(sizes).most_common(1)
        official = usual == _OFFICIAL_ROWS * (len(family.labels) + _PIXELS)
        for name, size in zip(batches, sizes, strict=True):
            if 2 * count > len(batches) and size < usual and (name != batches[-1] or official):
                raise SourceError(
                    f"{files[f'{name}.bin'].shown} is cut short: {size:,} bytes vs {usual:,} of the other batches; "
                    f"{_REMEDY}; rows of your own may be spread over the files evenly, with the rest in the last"
                )


def _source(
    dataset: str,
    family: Family,
    files: Mapping[str, RawFile],
    names: dict[str, tuple[str, ...]],
    read_batch: Callable[[str], tuple[RowBlock, dict[str, Labels]]],
) -> Source:
    splits = []
    for split, batch_names in family.splits.items():
        batches = [read_batch(name) for name in batch_names]
        blocks = tuple(block for block, _labels in batches if block.count)
        if not blocks:
            first = next(iter(files.values())).shown
            raise SourceError(f"{', '.join(batch_names)} beside {first} hold no image: 0 vs 1 at least; {_REMEDY}")
        labels = {
            kind.feature: np.concatenate([labels[kind.feature] for _block, labels in batches]) for kind in family.labels
        }
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


def _pickled_batch(family: Family, file: RawFile, work: Path) -> tuple[RowBlock, dict[str, Labels]]:
    """One pickled batch: where its images are, and its labels."""
    batch = read_pickle(file.path, file.shown)
    needed = ["data", *(kind.key for kind in family.labels)]
    if not isinstance(batch, dict) or not all(key in batch for key in needed):
        found = f"keys {_listed(batch)}" if isinstance(batch, dict) else f"a {type(batch).__name__}"
        raise SourceError(f"{file.shown} is no batch of {family.title}: {found} vs {needed} needed; {_REMEDY}")
    array = batch["data"]
    if not isinstance(array, PickledArray):
        raise SourceError(f"{file.shown}: the data is a {type(array).__name__} vs an array of uint8; {_REMEDY}")
    if array.dtype != np.uint8 or len(array.shape) != 2 or array.shape[1] != _PIXELS:
        raise SourceError(
            f"{file.shown}: the data has shape {array.shape} and dtype {array.dtype} "
            f"vs (rows, {_PIXELS}) and uint8; {_REMEDY}"
        )
    rows = array.shape[0]
    labels = {kind.feature: _pickled_labels(batch[kind.key], kind, rows, file) for kind in family.labels}
    return _pickled_images(array, file, work), labels


def _pickled_images(array: PickledArray, file: RawFile, work: Path) -> RowBlock:
    path, offset = file.place, 0
    if isinstance(array.data, Span) and not array.fortran:
        offset = array.data.offset
    elif array.shape[0]:
        (written,) = made_once(work, file.sha256, lambda folder: [_write_rows(array, file, folder / "images")])
        path = written.place
    return RowBlock(file.name, path, offset, _PIXELS, array.shape[0], "chw")


def _write_rows(array: PickledArray, file: RawFile, target: Path) -> RawFile:
    rows = array.load(file.path)
    return write_raw_file(
        target.name, target, (rows[first : first + 1024].tobytes() for first in range(0, len(rows), 1024))
    )


def _pickled_labels(values: Any, kind: LabelKind, rows: int, file: RawFile) -> Labels:
    """A batch's labels out of its pickle: a list of numbers, or an array."""
    if isinstance(values, PickledArray) and values.dtype.kind in "iu" and len(values.shape) == 1:
        _check_count(values.shape[0], rows, file, kind.key)
        values = values.load(file.path).tolist()
    if type(values) is not list or not all(type(value) is int for value in values):
        raise SourceError(f"{file.shown}: {kind.key!r} is not a list of whole numbers; {_REMEDY}")
    return checked_labels(values, rows, len(kind.names), file, kind.key)


def checked_labels(values: list[int] | Labels, rows: int, classes: int, file: RawFile, key: str = "labels") -> Labels:
    """Labels as uint8, once there is one for every image and each is the number of a class.

    Raises:
        SourceError: they are more or fewer than the images, or one is out of range.
    """
    _check_count(len(values), rows, file, key)
    if rows and not 0 <= min(values) <= max(values) < classes:
        row = next(row for row, value in enumerate(values) if not 0 <= value < classes)
        raise SourceError(f"{file.shown}: {key}[{row}] is {values[row]} vs 0 to {classes - 1}; {_REMEDY}")
    return np.array(values, np.uint8)


def _check_count(labels: int, rows: int, file: RawFile, key: str) -> None:
    if labels != rows:
        raise SourceError(f"{file.shown}: {labels:,} {key} vs {plural(rows, 'image')}; {_REMEDY}")


def _binary_batch(family: Family, file: RawFile) -> tuple[RowBlock, dict[str, Labels]]:
    """One ``.bin`` file: rows of the label bytes, then the image."""
    stride = len(family.labels) + _PIXELS
    if not file.bytes:
        raise SourceError(f"{file.shown} is empty: 0 bytes; {_REMEDY}")
    rows, rest = divmod(file.bytes, stride)
    if rest:
        raise SourceError(
            f"{file.shown} is truncated, or no {family.title} in binary layout: "
            f"{file.bytes:,} bytes vs {rows:,} or {rows + 1:,} rows of {stride:,}; {_REMEDY}"
        )
    columns = len(family.labels)
    # Read through, not mapped: a label a row touches every page, and all of the file would count as our memory.
    starts = RowBlock(file.name, file.place, 0, stride, rows, "chw").scan(columns)
    table = np.concatenate([np.empty((0, columns), np.uint8), *(part.copy() for part in starts)])
    labels = {kind.feature: _binary_labels(table[:, kind.column], kind, file) for kind in family.labels}
    return RowBlock(file.name, file.place, columns, stride, rows, "chw"), labels


def _binary_labels(column: Labels, kind: LabelKind, file: RawFile) -> Labels:
    return checked_labels(np.array(column), len(column), len(kind.names), file, kind.key)


def _meta(file: RawFile) -> dict[str | int, Any]:
    _check_class_file(file)
    meta = read_pickle(file.path, file.shown)
    if not isinstance(meta, dict):
        raise SourceError(f"{file.shown}: a {type(meta).__name__} vs a dictionary of class names; {_REMEDY}")
    return meta


def _check_class_file(file: RawFile) -> None:
    if file.bytes > bounds.CLASS_FILE_BYTES:
        raise SourceError(
            f"{file.shown} has {file.bytes:,} bytes vs {bounds.CLASS_FILE_BYTES:,} at most for class names; {_REMEDY}"
        )


def _lines(file: RawFile) -> list[str]:
    """A text file's lines, without empty ones: the official files end in some."""
    _check_class_file(file)
    with reading(file.shown):
        text = file.path.read_bytes().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _class_names(values: Any, kind: LabelKind, file: RawFile) -> tuple[str, ...]:
    """The class names that a source brings, once they are text and as many as there are classes."""
    if type(values) is not list or not all(type(value) in (str, bytes) for value in values):
        raise SourceError(f"{file.shown}: the class names are not a list of texts; {_REMEDY}")
    names = tuple(value.decode("utf-8", "replace") if type(value) is bytes else str(value) for value in values)
    if len(names) != len(kind.names):
        raise SourceError(f"{file.shown}: {plural(len(names), 'class name')} vs {len(kind.names)} classes; {_REMEDY}")
    for name in names:
        problem = class_names.problem_of(name)
        if problem:
            raise SourceError(f"{file.shown}: the class name {shortened(name)} {problem}; {_REMEDY}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"{file.shown}: two classes are called {twice!r}; {_REMEDY}")
    return names


def _listed(batch: dict[str | int, Any]) -> list[str]:
    return sorted(str(key)[:40] for key in list(batch)[:8])
