"""Store the source name and picture size of each record of a version, in a file next to its shards.

The names are no part of the records or the fingerprint, so renaming a file makes no new version. Reports, the
notebook and ``podline data show`` take the names of records from this file. Versions converted by Podline 1.0 lack it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from podline.base.errors import ArtifactError, SettingsError
from podline.base.plain import plain
from podline.data.identity import hexadecimal
from podline.data.images.arrow_file import decoded, encoded
from podline.data.places import IMAGE_ENDINGS
from podline.data.record_table import RecordTable
from podline.documents.manifest import TRAINING, Manifest, stored_name
from podline.store.contract import Store, explained

NAMES = "names.parquet"
"""The name of the file in a data set's folder."""
_PLACE = re.compile(r"(\w+)\[(\d+)\]")
_SCHEMA = pa.schema({"split": pa.string(), "name": pa.binary(), "pixels": pa.int64()})

compute: Any = pyarrow.compute  # its functions are created at import


class SourceFacts(NamedTuple):
    """The source names and picture sizes of some records.

    Attributes:
        names: the path of each record's image in the source, such as ``cat/1.png``; empty if unknown.
        pixels: width times height of each picture before resizing, (n,); -1 if unknown.
    """

    names: list[str]
    pixels: npt.NDArray[np.int64]

    @property
    def complete(self) -> bool:
        """Return whether all picture sizes are known."""
        return bool((self.pixels >= 0).all())

    @property
    def formats(self) -> list[str]:
        """Return the file extension of each name, such as ``.jpg``; empty if no image file has this extension."""
        endings = (PurePosixPath(name).suffix.lower().replace(".jpeg", ".jpg") for name in self.names)
        return [ending if ending in IMAGE_ENDINGS else "" for ending in endings]


def publish_names(store: Store, folder: str, splits: Mapping[str, Any]) -> None:
    """Publish the names of a version's records in the version's folder.

    ``splits``: split → table with the columns ``name`` and ``pixels``, one row per record, in the order of the records.

    Raises:
        StoreError: the store cannot be written.
    """
    parts = [
        rows.select(["name", "pixels"]).add_column(0, "split", pa.array([split] * len(rows), pa.string()))
        for split, rows in splits.items()
    ]
    with store.workspace("names") as workspace:
        with explained("write", workspace):
            pq.write_table(pa.concat_tables(parts).cast(_SCHEMA), workspace / NAMES, compression="zstd")
        store.publish_file(workspace / NAMES, f"{folder}/{NAMES}", replace=True, flush=False)


class RecordNames:
    """Reads the source names of a version's records; all are empty if Podline 1.0 converted the version."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self._manifest = store, manifest

    @cached_property
    def _table(self) -> Any:
        name = stored_name(self._manifest.folder, NAMES)
        if not self._store.exists(name):
            return _SCHEMA.empty_table()
        try:
            return pq.read_table(self._store.local(name), schema=_SCHEMA)
        except (pa.ArrowException, OSError) as error:
            raise ArtifactError(f"{self._store.where(name)} is damaged ({error}); convert the data again") from error

    def of_split(self, split: str) -> Any:
        """Return the rows of a split, in the order of its records."""
        return self._table.filter(compute.equal(self._table["split"], split))

    def facts(self, split: str, records: Sequence[int] | npt.NDArray[np.int64]) -> SourceFacts:
        """Return names and picture sizes of the records at some positions of a split.

        Raises:
            ArtifactError: the file is damaged.
        """
        rows, places = self.of_split(split), np.asarray(records, np.int64)
        if not len(rows):
            return SourceFacts([""] * len(places), np.full(len(places), -1))
        found = rows.take(places)
        return SourceFacts([plain(decoded(name)) for name in found["name"].to_pylist()], found["pixels"].to_numpy())

    def having(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield (split, position) of each record whose source name is ``name``.

        Raises:
            ArtifactError: the file is damaged.
        """
        for split in self._manifest.splits:
            found = compute.equal(self.of_split(split.name)["name"], pa.scalar(encoded(name), pa.binary()))
            yield from ((split.name, place) for place in np.flatnonzero(found.to_numpy()).tolist())


class NamedRecord(NamedTuple):
    """A record: its position in a split, its source name (empty if unknown) and its image's identity in hexadecimal."""

    split: str
    record: int
    name: str
    image: str

    @property
    def words(self) -> str:
        """Return position, name and identity as text."""
        return f"{self.split}[{self.record}]: {self.name or 'without a name'}, image {self.image}"


def find_records(store: Store, manifest: Manifest, wanted: str) -> list[NamedRecord]:
    """Find records by position, such as ``train[3]``, or by their name in the source.

    Raises:
        SettingsError: no record has this position or name.
        ArtifactError: a table is damaged.
    """
    names, place = RecordNames(store, manifest), _PLACE.fullmatch(wanted)
    sizes = {split.name: split.records for split in manifest.splits}
    found = [(place[1], int(place[2]))] if place and int(place[2]) < sizes.get(place[1], 0) else names.having(wanted)
    records = [
        NamedRecord(split, record, *names.facts(split, [record]).names, *identities(store, manifest, split, [record]))
        for split, record in found
    ]
    if not records:
        raise SettingsError(
            f"got --record {wanted}, expected a position such as train[0] (up to train[{sizes[TRAINING] - 1}]), or the "
            "name of a record in the source"
        )
    return records


def identities(store: Store, manifest: Manifest, split: str, records: Sequence[int]) -> list[str]:
    """Return the image identities, in hexadecimal, of the records at some positions of a split.

    Raises:
        ArtifactError: the table of records is damaged.
    """
    return hexadecimal(RecordTable.of(store, manifest).records(split).keys[np.array(records, np.int64)])
