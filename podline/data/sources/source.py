"""The contract of a source: what a conversion asks of opened raw data.

The planner opens a source once. Workers read the decoded images by position, so pixels are not sent, and a worker's
memory holds one shard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from podline.data.official import OfficialCheck
from podline.data.planning import ShardPlans
from podline.data.rawfiles import reading
from podline.data.records import Feature
from podline.data.shards import ShardFiller
from podline.data.sources.left_out import LeftOut
from podline.documents.manifest import FileInfo, Quarantined, SourceFile
from podline.frozen import JsonObject
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
        warnings: lines on what is probably not meant.
    """

    official: OfficialCheck | None = None
    contradicting: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class RawData(ABC):
    """An opened source: its records, by split, and how workers make them.

    Attributes:
        dataset: the data set's name.
        kind: kind of task; see :mod:`podline.kinds.table`.
        files: every raw file of the records, with its checksum.
        class_names: names by class number; empty if the kind has no classes.
        quarantined: records that cannot be converted, with the reason.
    """

    dataset: str
    kind: str
    files: tuple[SourceFile, ...]
    class_names: tuple[str, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()

    @property
    @abstractmethod
    def features(self) -> tuple[Feature, ...]:
        """The features of every record."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Number of records to convert, by split, ``train`` first."""

    @abstractmethod
    def shard_tables(self, plans: ShardPlans, seed: int, folder: Path, /) -> ShardTables:
        """Return the function by which workers make the records of shards, with its tables.

        Args:
            plans: the shards.
            seed: seed of the records' order in shards.
            folder: an existing folder for the tables, which are written on request.

        Raises:
            StoreError: the folder cannot be written.
        """

    @property
    def read(self) -> int:
        """Number of records in the raw files."""
        return sum(self.sizes.values()) + len(self.quarantined)

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """How many records of each part of the source are left out; by default none."""
        return ()

    @property
    def counted(self) -> dict[str, int]:
        """Number of applications of each rule to converted records; by default without rules."""
        return {}

    @property
    def bytes_of_a_file(self) -> int:
        """Mean size of the image file that a record stores beside its layout; by default records store pixels."""
        return 0

    @property
    def facts(self) -> JsonObject:
        """See :attr:`podline.documents.manifest.Manifest.facts`."""
        return {}

    def remarks(self) -> Remarks:
        """Return what the log says about the source.

        Raises:
            SourceError: the source has too many problems to convert.
        """
        return Remarks()

    def names(self, _seed: int, /) -> Mapping[str, Any]:
        """Return a table of the names of each split's records in the source, in their order in shards.

        See :mod:`podline.datasets.record_names`; by default records have no names.
        """
        return {}

    def publish_truths(self, _store: Store, _folder: str) -> dict[str, FileInfo]:
        """Write each split's ground truth into the data set's folder; return the file by split; by default none.

        Raises:
            StoreError: the store cannot be written.
        """
        return {}


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
    with reading(source, dataset.name, remedy=""):
        return read(dataset, source, settings, work)
