"""Raw pixels by position: rows of files, splits of them, and all that a source of pixels knows.

What is here is small and picklable (paths, offsets, one byte a label): workers open the same files themselves, by
position, so pixels never travel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from podline.data.records import LABEL, Feature, label_feature
from podline.data.sources.rawfiles import RawFile
from podline.documents.manifest import Quarantined, SourceFile
from podline.errors import SourceError

_SCANNED_BYTES = 4_000_000


@dataclass(frozen=True)
class RowBlock:
    """Consecutive images in one file of pixels, each (height, width, channels).

    Attributes:
        key: the raw file's short name, as errors and quarantine say it: ``data_batch_1``.
        path: the file of pixels, plain bytes.
        count: how many images.
    """

    key: str
    path: str
    count: int

    def read_into(self, out: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], images: npt.NDArray[np.int64]) -> None:
        """Reads image ``images[i]`` into ``out[rows[i]]``, as it is stored.

        One positioned read an image: cheaper than mapping the file anew, and it leaves no mapped pages behind.

        Args:
            out: uint8, (n, size), C-contiguous.
            rows: which rows of it to fill.
            images: which images to fill them with.

        Raises:
            SourceError: the file is gone or shorter than it was.
        """
        size, whole = out.shape[1], out.reshape(-1).data
        starts, places = (rows * size).tolist(), (images * size).tolist()
        with self._open() as stream:
            number, read = stream.fileno(), 0
            for start, place in zip(starts, places, strict=True):
                read += os.preadv(number, (whole[start : start + size],), place)
        self._check(read, len(places) * size)

    def scan(self, size: int) -> Iterator[npt.NDArray[np.uint8]]:
        """All images as they are stored, in the file's order, some megabytes at a time.

        Yields:
            uint8, (n, size).

        Raises:
            SourceError: the file is gone or shorter than it was.
        """
        step = max(1, _SCANNED_BYTES // size)
        with self._open() as stream:
            for first in range(0, self.count, step):
                wanted = size * min(step, self.count - first)
                found = np.fromfile(stream, np.uint8, wanted)
                self._check(found.size, wanted)
                yield found.reshape(-1, size)

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            with Path(self.path).open("rb", buffering=0) as stream:
                yield stream
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def _check(self, read: int, expected: int) -> None:
        if read != expected:
            raise SourceError(f"{self.path} was cut short while it was converted; restore it and convert again")


@dataclass(frozen=True)
class SourceSplit:
    """The records of one split that can be converted, in the source's own order.

    Attributes:
        name: ``train`` or ``test``.
        image_shape: (height, width, channels).
        blocks: where the images are.
        labels: feature name → array of unsigned integers, one value a record, over all blocks in order.
        kept: positions, over all blocks, of the records that are not quarantined; None when all are.
    """

    name: str
    image_shape: tuple[int, int, int]
    blocks: tuple[RowBlock, ...]
    labels: dict[str, npt.NDArray[np.unsignedinteger]]
    kept: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Records to convert."""
        return sum(block.count for block in self.blocks) if self.kept is None else len(self.kept)

    def record_name(self, index: int) -> str:
        """Where record ``index`` comes from: ``data_batch_1[17]``."""
        place = int(index) if self.kept is None else int(self.kept[index])
        for block in self.blocks:
            if place < block.count:
                return f"{block.key}[{place}]"
            place -= block.count
        raise IndexError(f"record {index} of {len(self)}")

    def read(
        self, indices: npt.NDArray[np.int64], scratch: npt.NDArray[np.uint8] | None = None
    ) -> dict[str, np.ndarray]:
        """The records at some positions, in the order given.

        Args:
            indices: int64, (n,).
            scratch: uint8, (n, bytes of an image): the memory that the images come in; new by default.

        Returns:
            ``image``: uint8, (len(indices), height, width, channels); every label feature: int64, (len(indices),).

        Raises:
            SourceError: a raw file is gone or shorter than it was.
        """
        places = indices if self.kept is None else self.kept[indices]
        height, width, channels = self.image_shape
        stored = np.empty((len(places), height * width * channels), np.uint8) if scratch is None else scratch
        first = 0
        for block in self.blocks:
            chosen = np.flatnonzero((places >= first) & (places < first + block.count))
            if len(chosen):
                block.read_into(stored, chosen, places[chosen] - first)
            first += block.count
        images = stored.reshape(-1, height, width, channels)
        return {"image": images, **{name: column[places].astype(np.int64) for name, column in self.labels.items()}}


@dataclass(frozen=True)
class RawRows:
    """Raw pixels of a data set, parsed: what the files hold and where.

    Attributes:
        dataset: ``cifar10`` …
        class_names: names of the main label's classes, in order.
        files: every raw file that the records come from, with its checksum.
        splits: ``train`` first.
        quarantined: records that were read and cannot be converted, with the reason.
        extra_class_names: names of the classes of further label features (``coarse_label`` of CIFAR-100).
        raw: the files themselves, by official name, unpacked.
        archive: what they were unpacked from, by its official name.
    """

    dataset: str
    class_names: tuple[str, ...]
    files: tuple[SourceFile, ...]
    splits: tuple[SourceSplit, ...]
    quarantined: tuple[Quarantined, ...] = ()
    extra_class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    raw: tuple[RawFile, ...] = ()
    archive: RawFile | None = None

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record: the image, then the labels."""
        split, classes = self.splits[0], {LABEL: self.class_names, **self.extra_class_names}
        return (
            Feature("image", "uint8", split.image_shape),
            *(label_feature(name, len(classes.get(name, ()))) for name in split.labels),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Records of each split to convert."""
        return {split.name: len(split) for split in self.splits}

    @property
    def read(self) -> int:
        """How many records the raw files hold."""
        return sum(map(len, self.splits)) + len(self.quarantined)
