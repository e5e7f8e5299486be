"""An open shard whose records have one length: an array of frames, mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.records import RecordLayout, elements, place_of
from podline.data.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Bytes,
    damaged_record,
    header,
    map_frames,
    payload_crcs,
    stored_crcs,
)
from podline.documents.manifest import FieldInfo


class PixelShard:
    """A shard of fixed-length records; see :class:`podline.data.open_shards.Shard`."""

    def __init__(self, path: Path, layout: RecordLayout, records: int) -> None:
        """Map the file.

        Raises:
            ArtifactError: it is gone, or has another size than so many records take.
            StoreError: it cannot be read.
        """
        self._path = path
        self._frames = map_frames(path, layout.record_length, records)
        self._header = np.frombuffer(header(layout.record_length), np.uint8)
        self._checked = np.zeros(records, np.bool_)
        self._columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return place * self._frames.shape[1]

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, as elements; see :class:`podline.data.open_shards.Shard`."""
        fresh = places[~self._checked[places]]
        if len(fresh):
            self._require_sound(fresh)
            self._checked[fresh] = True
        return [self._column(field)[places] for field in fields]

    def frames(self, start: int, stop: int) -> Bytes:
        """Return records start … stop-1 as checked frames, not writable."""
        self._require_sound(np.arange(start, stop))
        return self._frames[start:stop]

    def _column(self, field: FieldInfo) -> np.ndarray:
        column = self._columns.get(field.name)
        if column is None:
            column = self._columns[field.name] = elements(field, self._frames[:, place_of(field)])
        return column

    def _require_sound(self, places: npt.NDArray[np.int64]) -> None:
        headers, stored = self._frames[places, :HEADER_BYTES], stored_crcs(self._frames[places, -FOOTER_BYTES:])
        made = payload_crcs(self._frames, places.tolist())
        if (made == stored).all() and (headers == self._header).all():
            return
        for index, place in enumerate(places.tolist()):
            found, expected = headers[index].tobytes().hex(), self._header.tobytes().hex()
            if found != expected:
                how = f"starts with the bytes {found} vs {expected} for its length"
                raise damaged_record(self._path, place, self.start(place), how)
            if made[index] != stored[index]:
                how = f"has the masked CRC-32C {made[index]:08x} vs {stored[index]:08x} written after it"
                raise damaged_record(self._path, place, self.start(place), how)
