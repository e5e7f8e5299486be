"""The layout of a record: a ``tf.train.Example`` whose every value lies at a known place.

The payload is the protocol buffer message that ``Example(...).SerializeToString(deterministic=True)`` gives, features
in the order of their keys, encoded here by hand (https://protobuf.dev/programming-guides/encoding, messages from
TensorFlow's ``example.proto`` and ``feature.proto``):

======================= =================== =============================================================
a source's feature      stored as           value
======================= =================== =============================================================
int64 scalar, from 0 on  ``int64_list``      a varint of as many bytes as the feature says, one below 128
anything else           ``bytes_list``      raw bytes, little-endian, row-major, in the feature's real shape
======================= =================== =============================================================

A varint of two bytes or more is padded to its width, as protocol buffers allow: all but its last byte have the top bit
set, whatever the value. So labels below 16,384 take two bytes, and below 2,097,152 three, in every record.

Lengths depend on shapes and widths alone, so one template with zeros for values serves every record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from podline.data.tfrecord import FRAME_BYTES, HEADER_BYTES, Bytes, empty_frames, seal
from podline.documents.manifest import FieldInfo, FileFit
from podline.errors import SourceError

IMAGE, LABEL, IMAGE_ID = "image", "label", "image_id"  # keys: the picture, the main label, the id of COCO's image
VARINT_LIMIT = 128
_SHIFT = 7  # bits of a number in each byte of a varint
_LENGTH_DELIMITED = 2
_ONLY = 1  # number of the only field in Example, Features (a map's entries), BytesList and Int64List
_KEY, _VALUE = 1, 2
_BYTES_LIST, _INT64_LIST = 1, 3


@dataclass(frozen=True)
class Feature:
    """One feature of a source's records: its key, its dtype, its real shape (() for a scalar).

    Attributes:
        width: bytes of an int64 scalar's varint; see :func:`label_feature`.
        fit: how an image's file, which records hold instead of its pixels, becomes them; see :class:`FieldInfo`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int = 1
    fit: FileFit | None = None


@dataclass(frozen=True)
class RecordLayout:
    """Where everything lies in a record of fixed length.

    Attributes:
        fields: the features, in the order in which they lie in the payload.
        template: a payload whose values are all zero.
    """

    fields: tuple[FieldInfo, ...]
    template: bytes

    @property
    def decoded(self) -> RecordLayout:
        """The layout of the same records with pixels: itself."""
        return self

    @property
    def record_length(self) -> int:
        """Bytes of a payload."""
        return len(self.template)

    @property
    def frame_length(self) -> int:
        """Bytes of a record in a file: payload and TFRecord's frame."""
        return len(self.template) + FRAME_BYTES

    def frames(self, count: int) -> Bytes:
        """Return frames to be filled, (count, frame_length)."""
        return empty_frames(count, self.template)

    def values(self, frames: Bytes, name: str) -> np.ndarray:
        """Return one feature's values in a block of frames, as a view where that is possible.

        Args:
            frames: uint8, (n, frame_length).
            name: the feature's key.

        Returns:
            ``bytes`` features: the feature's dtype, (n, …shape); a view if ``frames`` is in memory as the layout says
            and the dtype is one byte. ``varint`` features: (n,), a uint8 view of single bytes, int64 of wider ones.
        """
        field = next(field for field in self.fields if field.name == name)
        return values_of(field, frames[:, place_of(field)])

    def fill(self, frames: Bytes, columns: Mapping[str, np.ndarray]) -> None:
        """Write values into frames made by :meth:`frames`, over whatever they held; the frames are not sealed.

        Args:
            frames: uint8, (n, frame_length).
            columns: some features' values, (n, …shape).

        Raises:
            SourceError: an integer does not fit into its varint.
        """
        for field in self.fields:
            if field.name in columns:
                put(frames, field, columns[field.name])

    def records(self, frames: Bytes, _files: Sequence[bytes]) -> list[memoryview]:
        """Seal frames and return them as they are in a shard."""
        seal(frames)
        return [frames.data]


def layout_of(features: Iterable[Feature]) -> RecordLayout:
    """Return the layout of records with some features."""
    entries, positions = b"", []
    for feature in sorted(features, key=lambda feature: feature.name):
        value, offset = _feature(feature)
        entry = _delimited(_KEY, feature.name.encode()) + _delimited(_VALUE, value)
        entries += _delimited(_ONLY, entry)
        positions.append((feature, len(entries) - len(value) + offset))
    template = _delimited(_ONLY, entries)
    before = len(template) - len(entries)
    fields = tuple(
        FieldInfo(
            name=feature.name,
            dtype=feature.dtype,
            shape=feature.shape,
            encoding=_encoding(feature),
            offset=before + position,
            width=feature.width,
        )
        for feature, position in positions
    )
    return RecordLayout(fields, template)


def label_feature(name: str, classes: int) -> Feature:
    """Return the feature of a label: its varint is as wide as the last of the classes needs."""
    return Feature(name, "int64", (), len(varint(max(0, classes - 1))))


def varints(raw: Bytes) -> np.ndarray:
    """Decode varints of one width, uint8 (n, width), to numbers, (n,): a view of single bytes, int64 of wider ones."""
    width = raw.shape[1]
    if width == 1:
        return raw[:, 0]
    return (raw & np.uint8(0x7F)).astype(np.int64) @ (1 << _SHIFT * np.arange(width))


def values_of(field: FieldInfo, raw: Bytes) -> np.ndarray:
    """Return a field's values from their bytes, uint8 (n, size); see :meth:`RecordLayout.values`."""
    if field.encoding == "varint":
        return varints(raw)
    if field.dtype != "uint8":
        raw = np.ascontiguousarray(raw).view(np.dtype(field.dtype).newbyteorder("<"))
    return raw.reshape(len(raw), *field.shape)


def limit_of(field: FieldInfo) -> int:
    """Return the number above all that a varint field can hold."""
    return VARINT_LIMIT**field.width


def place_of(field: FieldInfo) -> slice:
    """Return the columns, in a block of frames, that hold a field's value."""
    start = HEADER_BYTES + field.offset
    return slice(start, start + size_of(field))


def size_of(field: FieldInfo) -> int:
    """Return the bytes of a field's value."""
    if field.encoding == "varint":
        return field.width
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def put(frames: Bytes, field: FieldInfo, values: np.ndarray) -> None:
    """Write one field's values into a block of frames.

    Raises:
        SourceError: an integer does not fit into its varint.
    """
    columns = frames[:, place_of(field)]
    if field.encoding == "varint":
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < limit_of(field):
            raise SourceError(
                f"{field.name} has values from {values.min()} to {values.max()}; a record holds 0 to "
                f"{limit_of(field) - 1}"
            )
        for place in range(field.width - 1):
            columns[:, place] = values >> _SHIFT * place & 0x7F | 0x80
        columns[:, -1] = values >> _SHIFT * (field.width - 1)
    else:
        little = np.ascontiguousarray(values, np.dtype(field.dtype).newbyteorder("<"))
        columns[...] = little.reshape(len(values), -1).view(np.uint8)


def _encoding(feature: Feature) -> Literal["bytes", "varint"]:
    return "varint" if feature.dtype == "int64" and feature.shape == () else "bytes"


def _feature(feature: Feature) -> tuple[bytes, int]:
    """Return a ``tf.train.Feature`` with zero for a value, and where in it the value starts."""
    if _encoding(feature) == "varint":
        kind, zero = _INT64_LIST, varint(0, feature.width)
    else:
        kind, zero = _BYTES_LIST, bytes(math.prod(feature.shape) * np.dtype(feature.dtype).itemsize)
    message = _delimited(kind, _delimited(_ONLY, zero))
    return message, len(message) - len(zero)


def _delimited(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field: key, length, value."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(value)) + value


def varint(value: int, width: int = 0) -> bytes:
    """Encode a base-128 varint: seven bits a byte, the lowest first, the top bit set on all but the last.

    Args:
        value: from 0 on.
        width: bytes to pad it to; as few as can be by default.
    """
    groups = bytearray()
    while value >= VARINT_LIMIT or len(groups) + 1 < width:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
