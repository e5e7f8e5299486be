"""The contract of a source: splits whose records are read by position.

A source is opened once, by whoever plans; that reads every label and no pixel more than it must. What it hands out is
small and picklable (paths, offsets, one byte a label): workers open the same files themselves, by position, so pixels
never travel and memory is one shard a worker.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from podline.data.official import OfficialCheck
from podline.data.planning import ShardPlan, refuse_shared_records
from podline.data.records import LABEL, Feature, RecordLayout, label_feature
from podline.data.shards import Task, shard_tasks
from podline.data.sources.duplicates import contradictions, quarantine_shared, repeated_images
from podline.data.sources.left_out import LeftOut, left_out_of
from podline.data.sources.official_sums import check_official
from podline.data.sources.ranges import RangedFile
from podline.data.sources.rawfiles import RawFile
from podline.documents.manifest import FileInfo, Quarantined, SourceFile
from podline.documents.skeleton import COCO, Skeleton
from podline.errors import SourceError
from podline.store.prefetch import in_order

if TYPE_CHECKING:
    from podline.data.kept_jpegs import KeptLayout
    from podline.store.contract import Store

_SCANNED_BYTES = 4_000_000


@dataclass(frozen=True)
class RowBlock:
    """Consecutive images in one raw file, each at ``offset + i * stride``.

    Attributes:
        key: the raw file's short name, as errors and quarantine say it: ``data_batch_1``.
        path: the file to read, here or in a bucket; plain bytes (a compressed file is unpacked into the source's work
            folder first).
        offset: first byte of the first image.
        stride: bytes from one image to the next.
        count: how many images.
        layout: ``chw`` (planes, as CIFAR stores them) or ``hwc``.
    """

    key: str
    path: str | RangedFile
    offset: int
    stride: int
    count: int
    layout: Literal["chw", "hwc"]

    def read_into(self, out: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], images: npt.NDArray[np.int64]) -> None:
        """Reads image ``images[i]`` into ``out[rows[i]]``, as it is stored.

        One positioned read an image: cheaper than mapping the file anew, and it leaves no mapped pages behind. Of a
        file in a bucket, the blocks that hold any of the images are fetched: ask for many at once.

        Args:
            out: uint8, (n, size), C-contiguous.
            rows: which rows of it to fill.
            images: which images to fill them with.

        Raises:
            SourceError: the file is gone or shorter than it was.
        """
        if isinstance(self.path, RangedFile):
            self.path.rows_into(out, rows, self.offset + images * self.stride)
            return
        size, whole = out.shape[1], out.reshape(-1).data
        starts, places = (rows * size).tolist(), (self.offset + images * self.stride).tolist()
        with self._open(self.path) as stream:
            number, read = stream.fileno(), 0
            for start, place in zip(starts, places, strict=True):
                read += os.preadv(number, (whole[start : start + size],), place)
        self._check(read, len(places) * size)

    def scan(self, size: int) -> Iterator[npt.NDArray[np.uint8]]:
        """All images as they are stored, in the file's order, some megabytes at a time.

        Yields:
            uint8, (n, size); the next one overwrites it.

        Raises:
            SourceError: the file is gone or shorter than it was.
        """
        step = max(1, min(self.count, _SCANNED_BYTES // self.stride))
        firsts = range(0, self.count, step)
        counts = [min(step, self.count - first) for first in firsts]
        wanted = [
            (self.offset + first * self.stride, (count - 1) * self.stride + size)
            for first, count in zip(firsts, counts, strict=True)
        ]
        for count, found in zip(counts, self._ranges(self.path, wanted), strict=True):
            yield np.lib.stride_tricks.as_strided(found, (count, size), (self.stride, 1), writeable=False)

    def _ranges(self, path: str | RangedFile, wanted: Sequence[tuple[int, int]]) -> Iterator[npt.NDArray[np.uint8]]:
        """The bytes at some places, by start and length; the next ones overwrite them."""
        if isinstance(path, RangedFile):
            for data in in_order(lambda one: path.read(*one), wanted, path.parallel):
                yield np.frombuffer(data, np.uint8)
            return
        buffer = np.empty(max((length for _start, length in wanted), default=0), np.uint8)
        with self._open(path) as stream:
            for start, length in wanted:
                read = os.preadv(stream.fileno(), (buffer[:length].data,), start)
                self._check(read, length)
                yield buffer[:length]

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[BinaryIO]:
        try:
            with Path(path).open("rb", buffering=0) as stream:
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
        blocks: where the images are; all in one layout.
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

    @property
    def remote(self) -> bool:
        """Whether the images are in a bucket."""
        return any(isinstance(block.path, RangedFile) for block in self.blocks)

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
            ``image``: uint8, (len(indices), height, width, channels), where the source stores planes as a view of them;
            every label feature: int64, (len(indices),).

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
        if self.blocks[0].layout == "chw":
            images = stored.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        else:
            images = stored.reshape(-1, height, width, channels)
        return {"image": images, **{name: column[places].astype(np.int64) for name, column in self.labels.items()}}


class Remarks(NamedTuple):
    """What a conversion says of a source that changes no byte.

    Attributes:
        official: how the raw files compare with the published ones; None of data that nobody publishes.
        contradicting: split → records whose image another record of it has with another label.
        notes: how the source was understood, a line each.
    """

    official: OfficialCheck | None = None
    contradicting: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()


class RawData(Protocol):
    """What a conversion asks of any kind of source.

    Attributes:
        dataset: the data set's name.
        class_names: names of the main label's classes, in order.
        extra_class_names: names of the classes of further label features.
        files: every raw file that the records come from, with its checksum.
        quarantined: records that were read and cannot be converted, with the reason.
        left_out: how many of each part of the source these are.
        features: the features of every record.
        sizes: split → records to convert, ``train`` first.
        read: how many records the raw files hold.
        counted: rule → how often it was applied to records that are converted.
        bytes_of_a_file: of what a record in a shard holds besides its stored layout, on average.
        skeleton: of the keypoints; that of COCO's people where there are none.
    """

    @property
    def dataset(self) -> str: ...  # noqa: D102
    @property
    def class_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def extra_class_names(self) -> dict[str, tuple[str, ...]]: ...  # noqa: D102
    @property
    def files(self) -> tuple[SourceFile, ...]: ...  # noqa: D102
    @property
    def quarantined(self) -> tuple[Quarantined, ...]: ...  # noqa: D102
    @property
    def left_out(self) -> Sequence[LeftOut]: ...  # noqa: D102
    @property
    def features(self) -> tuple[Feature, ...]: ...  # noqa: D102
    @property
    def sizes(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def read(self) -> int: ...  # noqa: D102
    @property
    def counted(self) -> dict[str, int]: ...  # noqa: D102
    @property
    def bytes_of_a_file(self) -> int: ...  # noqa: D102
    @property
    def skeleton(self) -> Skeleton: ...  # noqa: D102

    def looked_at(self) -> tuple[RawData, Remarks]:
        """The source without what a look at every record leaves out, and what there is to say of it.

        Raises:
            SourceError: it must not be converted.
        """
        ...

    def stored(self, layout: RecordLayout) -> RecordLayout | KeptLayout:
        """The layout of records as they are in the files, from that of the same records with pixels."""
        ...

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """Writes what each split is judged by beside its records, into the data set's folder: split → its file.

        Raises:
            StoreError: the store cannot be written.
        """
        ...

    def shard_tasks(self, plans: Iterable[ShardPlan], seed: int, folder: Path, threads: int) -> Sequence[Task]:
        """Each plan with what a worker needs to write it.

        Args:
            plans: the shards.
            seed: of the order in which records are put into shards.
            folder: an existing folder that every worker can read.
            threads: that a worker may use to make records.

        Raises:
            StoreError: the folder cannot be written.
        """
        ...


@dataclass(frozen=True)
class Source:
    """A parsed source of raw pixels.

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
        return sum(block.count for split in self.splits for block in split.blocks)

    @property
    def counted(self) -> dict[str, int]:
        """Rules that were applied; raw pixels need none."""
        return {}

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What is left out of each split."""
        return left_out_of(self)

    @property
    def bytes_of_a_file(self) -> int:
        """Records hold pixels, and no file."""
        return 0

    @property
    def skeleton(self) -> Skeleton:
        """There are no keypoints."""
        return COCO

    def looked_at(self) -> tuple[Source, Remarks]:
        """The source without training images that the test split has too.

        Raises:
            SourceError: too many are, or have two labels; or a place in a raw file is converted twice.
        """
        repeated = repeated_images(self)
        remarks = Remarks(check_official(self), contradictions(self, repeated))
        apart = quarantine_shared(self, repeated)
        refuse_shared_records(apart.splits)
        return apart, remarks

    def stored(self, layout: RecordLayout) -> RecordLayout:
        """The layout with pixels itself."""
        return layout

    def publish_truths(self, _store: Store, _folder: str) -> dict[str, FileInfo]:
        """A class is judged by the record's own label."""
        return {}

    def shard_tasks(self, plans: Iterable[ShardPlan], seed: int, folder: Path, _threads: int) -> Sequence[Task]:
        """See :func:`podline.data.shards.shard_tasks`."""
        return shard_tasks(self, plans, seed, folder)
