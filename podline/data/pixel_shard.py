"""An open shard whose records have one length: an array of frames, mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.records import RecordLayout, elements, place_of
from podline.data.tfrecord import HEADER_BYTES, Bytes, damaged_record, header, map_frames, payload_crcs, stored_crcs
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

    def __len__(self) -> int:
        return len(self._frames)

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return place * self._frames.shape[1]

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, as elements; see :class:`podline.data.open_shards.Shard`."""
        if self._checked[places].all():
            return [elements(field, self._frames[:, place_of(field)])[places] for field in fields]
        frames = self._frames[places]  # a copy: what is checked is what is used
        self._require_sound(frames, places)
        self._checked[places] = True
        return [elements(field, frames[:, place_of(field)]) for field in fields]

    def frames(self, start: int, stop: int) -> Bytes:
        """Return records start … stop-1 as checked frames, not writable."""
        frames = self._frames[start:stop]
        self._require_sound(frames, np.arange(start, stop))
        return frames

    def _require_sound(self, frames: Bytes, places: npt.NDArray[np.int64]) -> None:
        headers_differ = (frames[:, :HEADER_BYTES] != self._header).any(axis=1)
        made, stored = payload_crcs(frames), stored_crcs(frames)
        for index in np.flatnonzero(headers_differ | (made != stored)).tolist():
            if headers_differ[index]:
                found, expected = frames[index, :HEADER_BYTES].tobytes().hex(), self._header.tobytes().hex()
                how = f"starts with the bytes {found} vs {expected} for its length"
            else:
                how = f"has the masked CRC-32C {made[index]:08x} vs {stored[index]:08x} written after it"
            place = int(places[index])
            raise damaged_record(self._path, place, self.start(place), how)
