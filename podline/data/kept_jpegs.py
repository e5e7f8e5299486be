"""Records that keep an image's JPEG file instead of its pixels: TFRecords of any length, read in any order.

Their payload is the same ``tf.train.Example``, but its image is a JPEG file, as it was, and comes last. All that stands
before has one length in every record: the five lengths that depend on the file's are varints of five bytes, which
protocol buffers allow, the last ones zero. So every other value lies at a known place of its record, and where records
begin is known from the lengths in their frames.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode
from podline.data.records import IMAGE, RecordLayout, elements, layout_of_fields, place_of, size_of
from podline.data.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, Bytes, header, masked, seal
from podline.documents.manifest import FieldInfo
from podline.errors import ArtifactError
from podline.plurals import plural
from podline.store.contract import explained

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
        return b"".join(_wide_varint(part) if isinstance(part, int) else part for part in parts)

    def pieces(self, frame: Bytes, jpeg: bytes) -> list[bytes]:
        """A record as it is written, in pieces.

        Args:
            frame: uint8, (decoded.frame_length,): the record with pixels, sealed or not.
            jpeg: the image's file.
        """
        head = np.frombuffer(bytearray(self._head(len(jpeg))), np.uint8)
        for field, source in zip(self.fields, self._others.fields, strict=False):
            decoded = next(field for field in self.decoded.fields if field.name == source.name)
            head[field.offset : field.offset + size_of(field)] = frame[place_of(decoded)]
        start = head.tobytes()
        crc = google_crc32c.extend(google_crc32c.value(start), jpeg)
        footer = masked(np.array([crc], np.uint32)).astype("<u4").tobytes()
        return [header(len(start) + len(jpeg)) + start, jpeg, footer]


def stored_layout(fields: Iterable[FieldInfo]) -> RecordLayout | KeptLayout:
    """The layout that a manifest's fields come from."""
    every = tuple(fields)
    layout = layout_of_fields(every)
    return KeptLayout(layout) if any(field.encoding == "jpeg" for field in every) else layout


def _wide_varint(value: int) -> bytes:
    """A varint of five bytes, whatever its value."""
    groups = [value >> shift & 0x7F for shift in range(0, 7 * _WIDE, 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


class KeptShard:
    """A shard's file, mapped into memory and read only where it is touched; any number of threads may read."""

    def __init__(self, path: Path, layout: KeptLayout, records: int) -> None:
        """Finds where the records begin.

        Args:
            path: the file.
            layout: of its records.
            records: how many the file must hold.

        Raises:
            ArtifactError: the file is gone, or is not so many frames.
            StoreError: it cannot be read.
        """
        self.path, self.layout = path, layout
        if not path.exists():
            raise ArtifactError(f"{path} is gone; {_REMEDY}")
        with explained("read", path), path.open("rb") as stream:
            self._data = np.asarray(np.memmap(stream, np.uint8, "r")) if path.stat().st_size else np.empty(0, np.uint8)
        self._starts = self._walk(records)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _walk(self, records: int) -> npt.NDArray[np.int64]:
        """The byte at which each record's frame starts, and the one after the last."""
        starts, place, size, data = np.empty(records + 1, np.int64), 0, len(self._data), self._data.data
        for number in range(records):
            starts[number] = place
            if place + HEADER_BYTES <= size:
                place += struct.unpack_from("<Q", data, place)[0] + FRAME_BYTES
            if place > size or place < starts[number] + self.layout.frame_length:
                raise ArtifactError(f"{self.path}: record {number}, at byte {starts[number]}, is cut off; {_REMEDY}")
        if place != size:
            raise ArtifactError(
                f"{self.path} has {size} bytes vs {place} of its {plural(records, 'record')}; {_REMEDY}"
            )
        starts[records] = place
        return starts

    def start(self, place: int) -> int:
        """The byte at which a record's frame starts."""
        return int(self._starts[place])

    def column(self, field: FieldInfo) -> _Values | _Images:
        """A field's values, to be indexed by an array of places; each is one element."""
        return _Images(self, field) if field.encoding == "jpeg" else _Values(self, field)

    def values(self, field: FieldInfo, places: npt.NDArray[np.int64]) -> Bytes:
        """The bytes of some records' values of a field other than the image, (n, bytes of a value)."""
        begins = self._starts[places] + HEADER_BYTES + field.offset
        return self._data[begins[:, None] + np.arange(size_of(field))]

    def raw(self, start: int, stop: int) -> Bytes:
        """Records start … stop-1 as they are in the file; a view."""
        return self._data[self._starts[start] : self._starts[stop]]

    def jpeg(self, place: int) -> Bytes:
        """A record's JPEG file; a view."""
        start, end = self._starts[place : place + 2]
        return self._data[start + HEADER_BYTES + self.layout.record_length : end - FOOTER_BYTES]

    def images(self, places: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        """Some records' images, decoded and put into their squares side by side.

        Args:
            places: int64, (n,).
            out: uint8, (n, side, side, 3), where to.

        Raises:
            ArtifactError: one cannot be decoded.
        """
        size = next(field for field in self.layout.fields if field.name == SIZE)
        sizes = np.ascontiguousarray(self.values(size, places)).view("<i8").tolist()

        def put(place: int, size: tuple[int, int], square: npt.NDArray[np.uint8]) -> None:
            width, height = size
            pixels = decode(self.jpeg(place), width, height)
            if pixels is None or pixels.shape != (height, width, 3):
                raise ArtifactError(f"{self.path}: the image of record {place} cannot be decoded; {_REMEDY}")
            LetterBox(width, height, square.shape[0]).place(pixels, out=square)

        list(_threads().map(put, places.tolist(), sizes, out))

    def frames(self, start: int, stop: int) -> Bytes:
        """Records start … stop-1 as frames with pixels, sealed, each checked to the last bit.

        Raises:
            ArtifactError: a record is damaged.
        """
        layout, places = self.layout.decoded, np.arange(start, stop)
        frames = layout.frames(len(places))
        for field in self.layout.fields[:-1]:
            decoded = next(one for one in layout.fields if one.name == field.name)
            frames[:, place_of(decoded)] = self.values(field, places)
        for place, frame in zip(places.tolist(), frames, strict=True):
            made = b"".join(self.layout.pieces(frame, self.jpeg(place).tobytes()))
            if made != self._data[self._starts[place] : self._starts[place + 1]].tobytes():
                at = f"record {place}, at byte {self.start(place)}"
                raise ArtifactError(f"{self.path}: {at}, is not what was written: lengths or checksum are wrong")
        self.images(places, layout.values(frames, IMAGE))
        seal(frames)
        return frames


@dataclass(frozen=True)
class _Values:
    """A field's values in a shard."""

    shard: KeptShard
    field: FieldInfo

    def __getitem__(self, places: npt.NDArray[np.int64]) -> np.ndarray:
        return elements(self.field, self.shard.values(self.field, places))


@dataclass(frozen=True)
class _Images:
    """A shard's images."""

    shard: KeptShard
    field: FieldInfo

    def __getitem__(self, places: npt.NDArray[np.int64]) -> np.ndarray:
        images = np.empty((len(places), *self.field.shape), np.uint8)
        self.shard.images(places, images)
        return images.reshape(len(places), -1).view(f"V{images[0].size}")[:, 0]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Threads that decode, as many as there are cores, for all shards together."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="decode")
