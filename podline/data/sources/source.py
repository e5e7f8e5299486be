"""The contract of a source: splits with records that are read by position.

The planner opens a source once; this reads every label and as few pixels as possible. The result is small and picklable
(paths, offsets, one byte per label). Workers open the same files themselves, by position, so pixels are not sent, and a
worker's memory holds one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from podline import entry_points
from podline.data.official import OfficialCheck, check_official
from podline.data.planning import ShardPlans
from podline.data.rawfiles import RawFile
from podline.data.records import IMAGE, Feature, label_feature
from podline.data.rows import SourceSplit
from podline.data.shards import (
    RowsByPlace,
    RowsInTables,
    ShardFiller,
    tables_of_places,
    tables_of_rows,
    without_targets,
)
from podline.data.sources.duplicates import without_repeated
from podline.data.sources.left_out import LeftOut
from podline.documents.manifest import FileInfo, Quarantined, SourceFile
from podline.errors import OutOfMemoryError, PodlineError, SourceError
from podline.frozen import JsonObject
from podline.kinds.shipped import USUAL_KIND
from podline.kinds.table import text_targets
from podline.recipes.datasets import ConverterSettings, DataSet

if TYPE_CHECKING:
    from podline.store.contract import Store


ShardTables = tuple[ShardFiller, Iterator[Path]]
"""The function by which workers make the records of shards, and the tables that it reads."""


class Remarks(NamedTuple):
    """Notes of a conversion about its source that do not change the data.

    Attributes:
        official: comparison of the raw files with the published ones; None for unpublished data.
        contradicting: split → number of records whose image another record has with another label.
        notes: how the source was understood, one line each.
    """

    official: OfficialCheck | None = None
    contradicting: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()


class RawData(Protocol):
    """The interface of every kind of source.

    Attributes:
        dataset: the data set's name.
        kind: kind of task; see :mod:`podline.kinds.table`.
        class_names: names by class number; empty if the kind has no classes.
        files: every raw file of the records, with its checksum.
        quarantined: records that cannot be converted, with the reason.
        left_out: counts of these for each part of the source.
        features: the features of every record.
        sizes: split → number of records to convert, ``train`` first.
        read: number of records in the raw files.
        counted: rule → number of its applications to converted records.
        bytes_of_a_file: mean size of the image file that a record stores beside its layout.
        facts: see :attr:`podline.documents.manifest.Manifest.facts`.
    """

    @property
    def dataset(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def class_names(self) -> tuple[str, ...]: ...  # noqa: D102
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
    def facts(self) -> JsonObject: ...  # noqa: D102

    def looked_at(self) -> tuple[RawData, Remarks]:
        """Return the source without the records that a full scan excludes, with notes for the log.

        Raises:
            SourceError: the scan found too many problems to convert.
        """
        ...

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """Write each split's ground truth into the data set's folder; return the file by split.

        Raises:
            StoreError: the store cannot be written.
        """
        ...

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, elsewhere: bool) -> ShardTables:
        """Return the function by which workers make the records of shards, with its tables.

        Args:
            plans: the shards.
            seed: seed of the records' order in shards.
            folder: an existing folder for the tables, which are written on request.
            elsewhere: whether workers run on other machines, which can only read the store.

        Raises:
            StoreError: the folder cannot be written.
        """
        ...


def open_raw(dataset: DataSet, source: str, settings: ConverterSettings, work: Path) -> RawData:
    """Open a data set's raw data.

    Args:
        dataset: the data set.
        source: the user's folder, file or ``gs://`` prefix.
        settings: the data set's settings.
        work: the cache folder of sources.

    Raises:
        SettingsError: its code cannot be imported.
        SourceError: the source is missing, damaged or another data set.
        OutOfMemoryError: the memory is too small.
    """
    read = dataset.code(dataset.open)
    try:
        return read(dataset, source, settings, work)
    except PodlineError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"out of memory while {source} is read; give this machine more memory") from error
    except Exception as error:
        raise SourceError(f"{source} cannot be read as {dataset.name}: {entry_points.reason(error)}") from error


@dataclass(frozen=True)
class Source:
    """A source of raw pixels; see :class:`RawData`.

    Attributes:
        dataset: ``cifar10`` …
        class_names: names by class number; empty if the kind has no classes.
        files: every raw file of the records, with its checksum.
        splits: the existing splits, in the order of :data:`podline.documents.manifest.SPLITS`.
        quarantined: records that cannot be converted, with the reason.
        extra_class_names: class names of further label features (``coarse_label`` of CIFAR-100).
        raw: the unpacked files, by official name.
        archive: the archive of these files, with its official name.
        kind: kind of task, whose targets are :class:`podline.kinds.contract.TextTargets`.
    """

    dataset: str
    class_names: tuple[str, ...]
    files: tuple[SourceFile, ...]
    splits: tuple[SourceSplit, ...]
    quarantined: tuple[Quarantined, ...] = ()
    extra_class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    raw: tuple[RawFile, ...] = ()
    archive: RawFile | None = None
    kind: str = USUAL_KIND

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of every record: the image, then the targets."""
        return (
            Feature(IMAGE, "uint8", self.splits[0].image_shape),
            *text_targets(self.kind).fields(self.class_names),
            *(label_feature(name, names) for name, names in self.extra_class_names.items()),
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Number of records to convert, by split."""
        return {split.name: len(split) for split in self.splits}

    @property
    def read(self) -> int:
        """Return the number of records in the raw files."""
        return sum(map(len, self.splits)) + len(self.quarantined)

    @property
    def counted(self) -> dict[str, int]:
        """Return no rules, since raw pixels need none."""
        return {}

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """Return the records left out of each split."""
        parts = {split.name: LeftOut(f"records of the {split.name} split", len(split)) for split in self.splits}
        for record in self.quarantined:
            parts[record.split].read += 1
            parts[record.split].add(record.reason)
        return list(parts.values())

    @property
    def bytes_of_a_file(self) -> int:
        """Return 0, since records store pixels and no file."""
        return 0

    @property
    def facts(self) -> JsonObject:
        """Return no facts besides the classes."""
        return {}

    def looked_at(self) -> tuple[Source, Remarks]:
        """Return the source without images of a split that a held-out split has too.

        Raises:
            SourceError: too many images are shared, or have contradicting targets.
        """
        found = without_repeated(self.dataset, text_targets(self.kind), self.class_names, self.splits)
        left_out = (*self.quarantined, *found.quarantined)
        apart = replace(self, splits=found.splits, quarantined=left_out) if found.quarantined else self
        return apart, Remarks(check_official(self.dataset, self.raw, self.archive), found.contradicting)

    def publish_truths(self, _store: Store, _folder: str) -> dict[str, FileInfo]:
        """Publish no file, since records contain the ground truth."""
        return {}

    def shard_tables(self, plans: ShardPlans, seed: int | None, folder: Path, elsewhere: bool) -> ShardTables:
        """See :meth:`RawData.shard_tables`; tables for other machines contain the pixels."""
        if elsewhere:
            return RowsInTables(), tables_of_rows(self.splits, plans, seed, folder)
        return RowsByPlace(without_targets(self.splits), seed), tables_of_places(self.splits, folder)
