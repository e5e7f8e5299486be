"""Stores the images of a source by column in a file, with their splits; memory holds a few bytes per image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from podline.data.images.column_file import (
    BATCH,
    DIGEST,
    SHA256_BYTES,
    TEXT,
    ColumnFile,
    array,
    compute,
    decoded,
    write_rows,
)
from podline.documents.manifest import SPLITS

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Image(NamedTuple):
    """An inspected image, or another file among the images.

    Attributes:
        key: its path in the source, or archive and name.
        label: its class, or None.
        split: the source's split name in lower case.
        group: images of one group go to the same split; empty without a group.
        reason: why it is left out, or empty; the text after a colon is about this image alone.
        stray: whether the file was not listed as an image.
        row: the row of its pixels; -1 if it was not decoded.
        sha256: checksum of its file; empty if the file cannot be read.
        pixels_sha256: checksum of its pixels in the data set; empty if it has none.
        bytes: size of its file.
        width: width of the picture as displayed.
        height: height of the picture as displayed.
        turned: whether the EXIF orientation turns it.
        stamp: a hash of its file's path, inode, size and time; 0 if the file holds several images.
    """

    key: str
    label: str | None
    split: str
    group: str
    reason: str = ""
    stray: bool = False
    row: int = -1
    sha256: bytes = b""
    pixels_sha256: bytes = b""
    bytes: int = 0
    width: int = 0
    height: int = 0
    turned: bool = False
    stamp: int = 0


_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("key", "label", "split", "group", "reason"), TEXT),
    "stray": pa.bool_(),
    "row": pa.int64(),
    **dict.fromkeys(("sha256", "pixels_sha256"), DIGEST),
    "bytes": pa.int64(),
    **dict.fromkeys(("width", "height"), pa.int32()),
    "turned": pa.bool_(),
    "stamp": pa.int64(),
}


def write_images(path: Path, images: Iterable[Image], about: Mapping[str, str]) -> None:
    """Write images into a file in reading order; see :func:`write_rows`."""
    write_rows(path, _TYPES, images, about, "zstd")


class ImageTable(ColumnFile):
    """The images in a file, with their splits.

    Args:
        path: path of a file from :func:`write_images`.

    Attributes:
        reasons: image → why it is left out; in reading order at the end.
        left_out: whether each image is left out.
        splits: the split of each image, uint8, as an index of :data:`podline.documents.manifest.SPLITS`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TYPES)
        self.reasons: dict[int, str] = {}
        self.left_out, self.splits = np.zeros(len(self), np.bool_), np.zeros(len(self), np.uint8)

    @property
    def every(self) -> Mask:
        """Return a mask that selects all images."""
        return np.ones(len(self), np.bool_)

    def without_reason(self) -> Mask:
        """Return a mask of the images that were decoded without a problem."""
        found = np.empty(len(self), np.bool_)
        for first, batch in self.batches("reason"):
            found[first : first + len(batch)] = array(compute.equal(compute.binary_length(batch["reason"]), 0))
        return found

    def leave_out(self, number: int, reason: str) -> None:
        """Record why an image is left out."""
        self.left_out[number], self.reasons[number] = True, reason

    def kept(self, split: str | None = None) -> Mask:
        """Return a mask of the images that are kept, in one split or in all."""
        return ~self.left_out if split is None else ~self.left_out & self.of_split(split)

    def of_split(self, split: str) -> Mask:
        """Return a mask of the images that were assigned to a split."""
        return self.splits == SPLITS.index(split)

    def split_of(self, number: int) -> str:
        """Return the split that an image was assigned to."""
        return SPLITS[self.splits[number]]

    def column(self, name: str, mask: Mask) -> npt.NDArray[Any]:
        """Return the values of a number column for some images."""
        return self._filled(name, mask, array, _TYPES[name].to_pandas_dtype())

    def heads(self, name: str, mask: Mask) -> npt.NDArray[np.uint64]:
        """Return the first 8 bytes of some images' checksums."""
        return self._filled(name, mask, heads, np.uint64)

    def _filled(self, name: str, mask: Mask, read: Callable[[pa.Array], npt.NDArray[Any]], dtype: Any) -> Any:
        found, end = np.empty(np.count_nonzero(mask), dtype), 0
        for first, batch in self.batches(name):
            some = read(batch[name])[mask[first : first + len(batch)]]
            found[end : (end := end + len(some))] = some
        return found

    def gather(self, numbers: Numbers, *names: str) -> list[npt.NDArray[Any]]:
        """Return columns of numbers or checksums for some images, in the given order; see :func:`array`."""
        order = np.argsort(numbers)
        edges = np.searchsorted(numbers, np.arange(0, len(self) + BATCH, BATCH), sorter=order)
        found = [np.empty(len(numbers), _dtype(name)) for name in names]
        for first, batch in self.batches(*names, only=np.flatnonzero(np.diff(edges)).tolist()):
            mine = order[edges[first // BATCH] : edges[first // BATCH + 1]]
            for column, name in zip(found, names, strict=True):
                column[mine] = array(batch[name])[numbers[mine] - first]
        return found

    def by_checksum(self, mask: Mask) -> Numbers:
        """Return some images ordered by file checksum, equal ones in reading order."""
        keys = self.heads("sha256", mask)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        numbers, same = np.flatnonzero(mask)[order], keys[1:] == keys[:-1]
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))  # they may differ in later bytes
        [checksums] = self.gather(numbers[tied], "sha256")
        numbers[tied] = numbers[tied[np.argsort(checksums, kind="stable")]]
        return numbers

    def values(self, name: str, mask: Mask) -> set[bytes]:
        """Return the distinct texts, without None, of a column for some images, encoded by :func:`encoded`."""
        found = set[bytes]()
        for first, batch in self.batches(name):
            some = batch[name].filter(mask[first : first + len(batch)])
            found.update(compute.unique(some.drop_null()).to_pylist())
        return found

    def some(self, numbers: Numbers, *names: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield some images, in ascending order, each with its values in some columns."""
        for at, mine in groupby(numbers.tolist(), lambda number: number // BATCH):
            places = list(mine)
            [(first, batch)] = self.batches(*names, only=[at])
            found = batch.take(pa.array([place - first for place in places]))
            yield from zip(places, zip(*(_values(found[name]) for name in names), strict=True), strict=True)


def _values(column: pa.Array) -> Sequence[Any]:
    values = column.to_pylist()
    return [None if text is None else decoded(text) for text in values] if column.type == TEXT else values


def _dtype(name: str) -> Any:
    return f"S{SHA256_BYTES}" if _TYPES[name] == DIGEST else _TYPES[name].to_pandas_dtype()


def heads(checksums: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the first 8 bytes of each checksum."""
    return array(checksums).view(">u8")[:: SHA256_BYTES // 8].astype(np.uint64)
