"""The images of a source as columns in a file, with their splits, so that memory holds a few bytes of each."""

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
    """An image that was looked at, or what lies among images.

    Attributes:
        key: its path in the source, or archive and name.
        label: its class; None where it has none.
        split: as the source says it, in small letters.
        group: images of one group stay on one side; empty where there is none.
        reason: why it is left out, empty if it is not; what follows a colon is about this image alone.
        stray: whether it was never meant to be an image.
        row: the number of its pixels; -1 of one that was not looked at.
        sha256: of its file; empty where it could not be read.
        pixels_sha256: of its pixels as the data set has them; empty where there are none.
        bytes: of its file.
        width: of the picture as it is shown.
        height: of the picture as it is shown.
        turned: whether EXIF turns it.
        stamp: a hash of its file's path, inode, size and time; 0 where it lies in a file with others.
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
    """Write images into a file, in the order of reading; see :func:`write_rows`."""
    write_rows(path, _TYPES, images, about, "zstd")


class ImageTable(ColumnFile):
    """The images in a file, with their splits.

    Args:
        path: of what :func:`write_images` wrote.

    Attributes:
        reasons: image → why it is left out; in the order of images once all is decided.
        left_out: whether each image is.
        splits: the split of each image, uint8, by its place in :data:`podline.documents.manifest.SPLITS`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, _TYPES)
        self.reasons: dict[int, str] = {}
        self.left_out, self.splits = np.zeros(len(self), np.bool_), np.zeros(len(self), np.uint8)

    @property
    def every(self) -> Mask:
        """Return a mask of all images."""
        return np.ones(len(self), np.bool_)

    def without_reason(self) -> Mask:
        """Return which images nothing was wrong with when they were decoded."""
        found = np.empty(len(self), np.bool_)
        for first, batch in self.batches("reason"):
            found[first : first + len(batch)] = array(compute.equal(compute.binary_length(batch["reason"]), 0))
        return found

    def leave_out(self, number: int, reason: str) -> None:
        """Note why an image is left out."""
        self.left_out[number], self.reasons[number] = True, reason

    def kept(self, split: str | None = None) -> Mask:
        """Return which images are not left out, of one split or of all."""
        return ~self.left_out if split is None else ~self.left_out & self.of_split(split)

    def of_split(self, split: str) -> Mask:
        """Return which images are of a split, as it was decided."""
        return self.splits == SPLITS.index(split)

    def split_of(self, number: int) -> str:
        """Return the split of an image, as it was decided."""
        return SPLITS[self.splits[number]]

    def column(self, name: str, mask: Mask) -> npt.NDArray[Any]:
        """Return a column of numbers at some images."""
        return self._filled(name, mask, array, _TYPES[name].to_pandas_dtype())

    def heads(self, name: str, mask: Mask) -> npt.NDArray[np.uint64]:
        """Return the first 8 bytes of the checksums of some images."""
        return self._filled(name, mask, heads, np.uint64)

    def _filled(self, name: str, mask: Mask, read: Callable[[pa.Array], npt.NDArray[Any]], dtype: Any) -> Any:
        found, end = np.empty(np.count_nonzero(mask), dtype), 0
        for first, batch in self.batches(name):
            some = read(batch[name])[mask[first : first + len(batch)]]
            found[end : (end := end + len(some))] = some
        return found

    def gather(self, numbers: Numbers, *names: str) -> list[npt.NDArray[Any]]:
        """Return columns of numbers or checksums at some images, in the order given; see :func:`array`."""
        order = np.argsort(numbers)
        edges = np.searchsorted(numbers, np.arange(0, len(self) + BATCH, BATCH), sorter=order)
        found = [np.empty(len(numbers), _dtype(name)) for name in names]
        for first, batch in self.batches(*names, only=np.flatnonzero(np.diff(edges)).tolist()):
            mine = order[edges[first // BATCH] : edges[first // BATCH + 1]]
            for column, name in zip(found, names, strict=True):
                column[mine] = array(batch[name])[numbers[mine] - first]
        return found

    def by_checksum(self, mask: Mask) -> Numbers:
        """Return some images in the order of their files' checksums, equal ones in the order of reading."""
        keys = self.heads("sha256", mask)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        numbers, same = np.flatnonzero(mask)[order], keys[1:] == keys[:-1]
        tied = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))  # maybe no further
        [checksums] = self.gather(numbers[tied], "sha256")
        numbers[tied] = numbers[tied[np.argsort(checksums, kind="stable")]]
        return numbers

    def values(self, name: str, mask: Mask) -> set[bytes]:
        """Return which texts a column has at some images, as :func:`encoded` has them; None is not one."""
        found = set[bytes]()
        for first, batch in self.batches(name):
            some = batch[name].filter(mask[first : first + len(batch)])
            found.update(compute.unique(some.drop_null()).to_pylist())
        return found

    def some(self, numbers: Numbers, *names: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield some images, whose numbers ascend, each with the values of some columns of texts or numbers."""
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
    """Return the first 8 bytes of checksums."""
    return array(checksums).view(">u8")[:: SHA256_BYTES // 8].astype(np.uint64)
