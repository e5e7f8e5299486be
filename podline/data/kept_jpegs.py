"""Records that keep an image's JPEG file instead of its pixels: TFRecords of any length, read in any order.

Their payload is the same ``tf.train.Example``, but its image is a JPEG file, as it was, and comes last. All that stands
before has one length in every record: the five lengths that depend on the file's are varints of five bytes, which
protocol buffers allow, the last ones zero. So every other value lies at a known place of its record, and where records
begin is known from the lengths in their frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from podline.data.records import IMAGE, RecordLayout, layout_of_fields, place_of, size_of, varint
from podline.data.tfrecord import (
    FRAME_BYTES,
    Bytes,
    header,
    masked_crc,
)
from podline.documents.manifest import FieldInfo

SIZE = "size"
"""The feature that says an image's own width and height."""

_WIDE = 5  # bytes of the varints that are not as short as they could be
_KEY = b"\x0a\x05" + IMAGE.encode()


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
