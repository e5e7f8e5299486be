"""Records that keep an image's JPEG file instead of its pixels: TFRecords of any length, read in any order.

Their payload is the same ``tf.train.Example``, but its image is a JPEG file, as it was, and comes last. All that stands
before has one length in every record: the five lengths that depend on the file's are varints of five bytes, which
protocol buffers allow, the last ones zero. So every other value lies at a known place of its record, and where records
begin is known from the lengths in their frames.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode
from podline.data.records import IMAGE, RecordLayout, elements, layout_of_fields, place_of, size_of, varint
from podline.data.tfrecord import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    Bytes,
    damaged_record,
    header,
    map_file,
    masked_crc,
    seal,
    walk,
)
from podline.documents.manifest import FieldInfo
from podline.errors import ArtifactError
from podline.plurals import plural

SIZE = "size"
"""The feature that says an image's own width and height."""

_WIDE = 5  # bytes of the varints that are not as short as they could be
_KEY = b"\x0a\x05" + IMAGE.encode()
_REMEDY = "convert the data again"


@dataclass(frozen=True)
class KeptLayout:
    """Where everything lies in a record that keeps a JPEG file.

    Attributes:
        decoded: the layout of the same records with pixels.
    """

    decoded: RecordLayout

    @cached_property
    def fields(self) -> tuple[FieldInfo, ...]:
        """The features; ``offset`` of the image is where its file starts, ``shape`` what it becomes."""
        first, _entries = self._rest
        image = next(field for field in self.decoded.fields if field.name == IMAGE)
        return (
            *(field.model_copy(update={"offset": field.offset - first + 1 + _WIDE}) for field in self._others.fields),
            image.model_copy(update={"offset": self.record_length, "encoding": "jpeg"}),
        )

    @cached_property
    def record_length(self) -> int:
        """Bytes of a payload without the JPEG file."""
        return len(self._head(0))

    @property
    def frame_length(self) -> int:
        """Bytes of a record in a file without the JPEG file: payload and TFRecord's frame."""
        return self.record_length + FRAME_BYTES

    @cached_property
    def _others(self) -> RecordLayout:
        return layout_of_fields(field for field in self.decoded.fields if field.name != IMAGE)

    @cached_property
    def _rest(self) -> tuple[int, bytes]:
        """Where the features other than the image start in a payload with nothing else, and they, all zero."""
        template = self._others.template
        first = 2 + next(place for place, byte in enumerate(template[1:]) if byte < 128)
        return first, template[first:]

    def _head(self, size: int) -> bytes:
        """All that comes before a JPEG file of so many bytes, other values zero."""
        values, (_first, entries) = size + 1 + _WIDE, self._rest
        feature = values + 1 + _WIDE
        entry = len(_KEY) + 1 + _WIDE + feature
        features = len(entries) + 1 + _WIDE + entry
        parts = (b"\x0a", features, entries, b"\x0a", entry, _KEY, b"\x12", feature, b"\x0a", values, b"\x0a", size)
        return b"".join(varint(part, _WIDE) if isinstance(part, int) else part for part in parts)

    def pieces(self, frame: Bytes, jpeg: bytes) -> list[bytes]:
        """Return a record as it is written, in pieces.

        Args:
            frame: uint8, (decoded.frame_length,): the record with pixels, sealed or not.
            jpeg: the image's file.
        """
        head = np.frombuffer(bytearray(self._head(len(jpeg))), np.uint8)
        for field, source in zip(self.fields, self._others.fields, strict=False):
            decoded = next(field for field in self.decoded.fields if field.name == source.name)
            head[field.offset : field.offset + size_of(field)] = frame[place_of(decoded)]
        start = head.tobytes()
        return [header(len(start) + len(jpeg)) + start, jpeg, masked_crc(start + jpeg)]


def stored_layout(fields: Iterable[FieldInfo]) -> RecordLayout | KeptLayout:
    """Return the layout that a manifest's fields come from."""
    every = tuple(fields)
    layout = layout_of_fields(every)
    return KeptLayout(layout) if any(field.encoding == "jpeg" for field in every) else layout


class KeptShard:
    """A shard of records with JPEG files; see :class:`podline.data.open_shards.Shard`."""

    def __init__(self, path: Path, layout: KeptLayout, records: int) -> None:
        """Map the file and find where its records begin.

        Raises:
            ArtifactError: it is gone, or is not so many frames.
            StoreError: it cannot be read.
        """
        self._path, self._layout, self._data = path, layout, map_file(path)
        self._starts = np.array([*(start for start, _, _ in walk(path, self._data)), len(self._data)])
        if len(self) != records:
            raise ArtifactError(f"{path} holds {plural(len(self), 'record')} vs {records} in the manifest; {_REMEDY}")
        for place in np.flatnonzero(np.diff(self._starts) < layout.frame_length).tolist():
            raise damaged_record(path, place, self.start(place), f"is shorter than {layout.frame_length} bytes")
        self._checked = np.zeros(records, np.bool_)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return int(self._starts[place])

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, images decoded; see :class:`podline.data.open_shards.Shard`."""
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
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="decode")
