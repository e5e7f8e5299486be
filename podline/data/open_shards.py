"""Open shards, whether their records hold pixels or JPEG files: values by the records' places."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from podline.cores import usable_cores
from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode
from podline.data.kept_jpegs import SIZE, KeptLayout
from podline.data.records import RecordLayout, elements, place_of, size_of
from podline.data.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Bytes,
    damaged_record,
    header,
    map_file,
    map_frames,
    masked_crc,
    payload_crcs,
    seal,
    stored_crcs,
    walk,
)
from podline.documents.manifest import FieldInfo
from podline.errors import ArtifactError
from podline.plurals import plural


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

    def frames(self, start: int, stop: int) -> Bytes:
        """Return records start … stop-1 as frames with pixels, each checked.

        Raises:
            ArtifactError: a record is damaged; it is named.
        """
        ...


def open_shard(path: Path, layout: RecordLayout | KeptLayout, records: int) -> Shard:
    """Open a shard's file.

    Args:
        path: the file.
        layout: of its records as they are in the file.
        records: how many it must hold.

    Raises:
        ArtifactError: it is gone, or holds something else.
        StoreError: it cannot be read.
    """
    if isinstance(layout, KeptLayout):
        return KeptShard(path, layout, records)
    return PixelShard(path, layout, records)


class PixelShard:
    """A shard of fixed-length records; see :class:`Shard`."""

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
        """Return the fields' values of some records, as elements; see :class:`Shard`."""
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


class KeptShard:
    """A shard of records with JPEG files; see :class:`Shard`."""

    def __init__(self, path: Path, layout: KeptLayout, records: int) -> None:
        """Map the file and find where its records begin.

        Raises:
            ArtifactError: it is gone, or is not so many frames.
            StoreError: it cannot be read.
        """
        self._path, self._layout, self._data = path, layout, map_file(path)
        self._starts = np.array([*(start for start, _, _ in walk(path, self._data)), len(self._data)])
        if len(self) != records:
            raise ArtifactError(
                f"{path} holds {plural(len(self), 'record')} vs {records} in the manifest; convert the data again"
            )
        for place in np.flatnonzero(np.diff(self._starts) < layout.frame_length).tolist():
            raise damaged_record(path, place, self.start(place), f"is shorter than {layout.frame_length} bytes")
        self._checked = np.zeros(records, np.bool_)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return int(self._starts[place])

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, images decoded; see :class:`Shard`."""
        for place in places[~self._checked[places]].tolist():
            frame = self._frame(place)
            if frame[-FOOTER_BYTES:].tobytes() != masked_crc(frame[HEADER_BYTES:-FOOTER_BYTES]):
                raise self._damaged(place, "is damaged: its payload has another CRC-32C")
            self._checked[place] = True
        return [elements(field, self._values(field, places)) for field in fields]

    def frames(self, start: int, stop: int) -> Bytes:
        """Return records start … stop-1 as sealed frames with pixels, each checked to the last bit."""
        decoded, places = self._layout.decoded, np.arange(start, stop)
        frames = decoded.frames(len(places))
        targets = {field.name: place_of(field) for field in decoded.fields}
        for field in self._layout.fields:
            frames[:, targets[field.name]] = self._values(field, places)
        seal(frames)
        for place, frame in zip(places.tolist(), frames, strict=True):
            if b"".join(self._layout.pieces(frame, self._jpeg(place).tobytes())) != self._frame(place).tobytes():
                raise self._damaged(place, "is not what was written: lengths or checksum are wrong")
        return frames

    def _values(self, field: FieldInfo, places: npt.NDArray[np.int64]) -> Bytes:
        """Return the bytes of some records' values, (n, bytes of a value); of images, their pixels."""
        if field.encoding == "jpeg":
            images = np.empty((len(places), *field.shape), np.uint8)
            self._decode(places, images)
            return images.reshape(len(places), -1)
        begins = self._starts[places] + HEADER_BYTES + field.offset
        return self._data[begins[:, None] + np.arange(size_of(field))]

    def _decode(self, places: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        """Decode some records' images, side by side, into squares, uint8 (n, side, side, 3)."""
        size = next(field for field in self._layout.fields if field.name == SIZE)
        sizes = np.ascontiguousarray(self._values(size, places)).view("<i8").tolist()

        def put(place: int, size: tuple[int, int], square: npt.NDArray[np.uint8]) -> None:
            width, height = size
            pixels = decode(self._jpeg(place), width, height)
            if pixels is None or pixels.shape != (height, width, 3):
                raise self._damaged(place, "has an image that cannot be decoded")
            LetterBox(width, height, square.shape[0]).place(pixels, out=square)

        list(_threads().map(put, places.tolist(), sizes, out))

    def _frame(self, place: int) -> Bytes:
        start, end = self._starts[place : place + 2]
        return self._data[start:end]

    def _jpeg(self, place: int) -> Bytes:
        return self._frame(place)[HEADER_BYTES + self._layout.record_length : -FOOTER_BYTES]

    def _damaged(self, place: int, how: str) -> ArtifactError:
        return damaged_record(self._path, place, self.start(place), how)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Threads that decode, as many as there are cores, for all shards together."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="decode")
