"""Open shards, whether their records hold pixels or image files: values by the records' places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from podline.data.encoded_records import EncodedShard
from podline.data.records import elements, place_of
from podline.data.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    header,
    map_frames,
    payload_crcs,
    require_sound,
    stored_crcs,
)
from podline.documents.manifest import FieldInfo, Manifest, ShardInfo


class Shard(Protocol):
    """A shard's records, by their places in it; any number of threads may read.

    Each record's CRC-32C, which is part of the TFRecord format, is checked when the record is read first.
    """

    def __len__(self) -> int:
        """Return how many records there are."""
        ...

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        ...

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, each one element of :func:`podline.data.records.elements`.

        Args:
            places: int64, (n,).
            fields: which values.

        Returns:
            For each field, (n,).

        Raises:
            ArtifactError: a record is damaged; it is named.
        """
        ...


def open_shard(local: Callable[[str], Path], manifest: Manifest, info: ShardInfo) -> Shard:
    """Open a shard.

    Args:
        local: gives a file of the data set's folder by its name.
        manifest: of the data set.
        info: the shard.

    Raises:
        ArtifactError: it is gone, or holds something else.
        StoreError: it cannot be read.
    """
    if info.index:
        return EncodedShard(local(info.file), local(info.index.file), info, manifest.fields)
    return PixelShard(local(info.file), manifest.record_length, info.records)


class PixelShard:
    """A shard of fixed-length records; see :class:`Shard`."""

    def __init__(self, path: Path, record_length: int, records: int) -> None:
        """Map the file.

        Raises:
            ArtifactError: it is gone, or has another size than so many records take.
            StoreError: it cannot be read.
        """
        self._path = path
        self._frames = map_frames(path, record_length, records)
        self._header = np.frombuffer(header(record_length), np.uint8)
        self._checked = np.zeros(records, np.bool_)
        self._columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return place * self._frames.shape[1]

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, as elements; see :class:`Shard`."""
        fresh = places[~self._checked[places]]
        if len(fresh):
            self._require_sound(fresh)
            self._checked[fresh] = True
        return [self._column(field)[places] for field in fields]

    def _column(self, field: FieldInfo) -> np.ndarray:
        column = self._columns.get(field.name)
        if column is None:
            column = self._columns[field.name] = elements(field, self._frames[:, place_of(field)])
        return column

    def _require_sound(self, places: npt.NDArray[np.int64]) -> None:
        headers, stored = self._frames[places, :HEADER_BYTES], stored_crcs(self._frames[places, -FOOTER_BYTES:])
        if (headers == self._header).all() and (payload_crcs(self._frames, places.tolist()) == stored).all():
            return
        for place in places.tolist():
            require_sound(self._path, place, self.start(place), self._frames[place])
