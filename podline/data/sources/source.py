"""The contract of a source: splits whose records are read by position.

A source is opened once, by the planner; that reads every label and no pixel more than it must. What it hands out is
small and picklable (paths, offsets, one byte a label): workers open the same files themselves, by position, so pixels
never travel and memory is one shard a worker.
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
from podline.errors import ChildKilledError, PodlineError, SourceError
from podline.frozen import JsonObject
from podline.kinds.shipped import USUAL_KIND
from podline.kinds.table import text_targets
from podline.recipes.datasets import ConverterSettings, DataSet

if TYPE_CHECKING:
    from podline.store.contract import Store


ShardTables = tuple[ShardFiller, Iterator[Path]]
"""How workers make the records of shards, and the tables that they need for it."""


class Remarks(NamedTuple):
    """Notes of a conversion about its source that change no byte.

    Attributes:
        official: how the raw files compare with the published ones; None of data that were never published.
        contradicting: split → records whose image another record of it has with another label.
        notes: how the source was understood, a line each.
    """

    official: OfficialCheck | None = None
    contradicting: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()


class RawData(Protocol):
    """The interface of every kind of source.

    Attributes:
        dataset: the data set's name.
        kind: of task; see :mod:`podline.kinds.table`.
        class_names: in the order of their numbers; none where the kind has no classes.
        files: every raw file that the records come from, with its checksum.
        quarantined: records that were read and cannot be converted, with the reason.
        left_out: how many of each part of the source these are.
        features: the features of every record.
        sizes: split → records to convert, ``train`` first.
        read: how many records the raw files hold.
        counted: rule → how often it was applied to records that are converted.
        bytes_of_a_file: of what a record in a shard holds besides its stored layout, on average.
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
            SourceError: it must not be converted.
        """
        ...

    def publish_truths(self, store: Store, folder: str) -> dict[str, FileInfo]:
        """Write what each split is judged by beside its records, into the data set's folder: split → its file.

        Raises:
            StoreError: the store cannot be written.
        """
        ...

    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, elsewhere: bool) -> ShardTables:
        """Return the function by which workers make the records of shards, with its tables.

        Args:
            plans: the shards.
            seed: of the order in which records are put into shards.
            folder: an existing folder, into which a table is written when it is asked for.
            elsewhere: whether the workers are on other machines, which see the store and no file of this one.

        Raises:
            StoreError: the folder cannot be written.
        """
        ...


def open_raw(dataset: DataSet, source: str, settings: ConverterSettings, work: Path) -> RawData:
    """Return a data set's raw data.

    Args:
        dataset: what it is.
        source: the folder, file or ``gs://`` prefix that the user named.
        settings: the data set's own.
        work: the cache folder of sources.

    Raises:
        SettingsError: its code cannot be imported.
        SourceError: the source is missing, damaged or another data set.
        ChildKilledError: there is too little memory.
    """
    read = dataset.code(dataset.open)
    try:
        return read(dataset, source, settings, work)
    except PodlineError:
        raise
    except MemoryError as error:
        raise ChildKilledError(f"out of memory while {source} is read; give this machine more memory") from error
    except Exception as error:
        raise SourceError(f"{source} cannot be read as {dataset.name}: {entry_points.reason(error)}") from error


@dataclass(frozen=True)
class Source:
    """A source of raw pixels: see :class:`RawData`.

    Attributes:
        dataset: ``cifar10`` …
        class_names: in the order of their numbers; none where the kind has no classes.
        files: every raw file that the records come from, with its checksum.
        splits: those of :data:`podline.documents.manifest.SPLITS` that there are, in that order.
        quarantined: records that were read and cannot be converted, with the reason.
        extra_class_names: names of the classes of further label features (``coarse_label`` of CIFAR-100).
        raw: the files themselves, by official name, unpacked.
        archive: what they were unpacked from, by its official name.
        kind: of task: one whose targets are :class:`podline.kinds.contract.TextTargets`.
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
        """Records of each split to convert."""
        return {split.name: len(split) for split in self.splits}

    @property
    def read(self) -> int:
        """Return the number of records in the raw files."""
        return sum(map(len, self.splits)) + len(self.quarantined)

    @property
    def counted(self) -> dict[str, int]:
        """Rules that were applied; raw pixels need none."""
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
        """Records hold pixels, and no file."""
        return 0

    @property
    def facts(self) -> JsonObject:
        """There are none but the classes."""
        return {}

    def looked_at(self) -> tuple[Source, Remarks]:
        """Return the source without images that a split has which is tested or validated on, and another one too.

        Raises:
            SourceError: too many are, or have two targets.
        """
        found = without_repeated(self.dataset, text_targets(self.kind), self.class_names, self.splits)
        left_out = (*self.quarantined, *found.quarantined)
        apart = replace(self, splits=found.splits, quarantined=left_out) if found.quarantined else self
        return apart, Remarks(check_official(self.dataset, self.raw, self.archive), found.contradicting)

    def publish_truths(self, _store: Store, _folder: str) -> dict[str, FileInfo]:
        """Publish nothing: a record holds what a model is judged by."""
        return {}

    def shard_tables(self, plans: ShardPlans, seed: int | None, folder: Path, elsewhere: bool) -> ShardTables:
        """See :meth:`RawData.shard_tables`; to other machines pixels go in the tables."""
        if elsewhere:
            return RowsInTables(), tables_of_rows(self.splits, plans, seed, folder)
        return RowsByPlace(without_targets(self.splits), seed), tables_of_places(self.splits, folder)
