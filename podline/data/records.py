"""The layout of a record: a ``tf.train.Example`` with every value at a fixed byte offset.

The payload equals ``Example(...).SerializeToString(deterministic=True)``, with features in the order of their keys. It
is encoded here by hand (https://protobuf.dev/programming-guides/encoding, messages from TensorFlow's ``example.proto``
and ``feature.proto``):

======================= =================== =============================================================
a source's feature      stored as           value
======================= =================== =============================================================
int64 scalar, 0 or more  ``int64_list``      a varint with the feature's number of bytes, one byte below 128
anything else           ``bytes_list``      raw bytes, little-endian, row-major, in the feature's real shape
======================= =================== =============================================================

A varint of two bytes or more is padded to its width, as protocol buffers allow: all its bytes but the last have the top
bit set, whatever the value. So a label takes two bytes in every record if there are 129 to 16,384 classes.

Lengths depend only on shapes and widths, so one template with zero values serves every record.

A record may store its image as a JPEG file instead of pixels. Its payload then consists of two Examples, which protocol
buffers merge: one without the image, one with only the image. The five lengths in the second Example are varints of
five bytes, so the image file also begins at a fixed offset. An index file beside the shard has the records' positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from podline.base.errors import SourceError
from podline.data.tfrecord import FRAME_BYTES, HEADER_BYTES, Bytes, framed, payloads, seal
from podline.documents.feature import Feature
from podline.documents.manifest import FieldInfo, Fit

IMAGE, LABEL, IMAGE_ID = "image", "label", "image_id"  # keys of the picture, its class and the id of COCO's image
VARINT_LIMIT = 128
_SHIFT = 7  # bits of a number in each byte of a varint
_LENGTH_DELIMITED = 2
_ONLY = 1  # the field number in Example, Features (a map's entries), BytesList and Int64List
_KEY, _VALUE = 1, 2
_BYTES_LIST, _INT64_LIST = 1, 3
_WIDE = 5  # bytes of each varint length before an image file


@dataclass(frozen=True)
class RecordLayout:
    """The layout of a record of fixed length.

    Attributes:
        fields: the features, in the order of the payload.
        template: a payload with zero values.
    """

    fields: tuple[FieldInfo, ...]
    template: bytes

    @property
    def decoded(self) -> RecordLayout:
        """This layout itself, since it stores pixels; see :attr:`EncodedLayout.decoded`."""
        return self

    @property
    def record_length(self) -> int:
        """The number of bytes of a payload."""
        return len(self.template)

    @property
    def frame_length(self) -> int:
        """The number of bytes of a record in a file: payload and TFRecord's frame."""
        return len(self.template) + FRAME_BYTES

    def frames(self, count: int) -> Bytes:
        """Return frames with zero values, to fill in: uint8 (count, frame_length)."""
        return np.tile(np.frombuffer(framed(self.template), np.uint8), (count, 1))

    def values(self, frames: Bytes, name: str) -> np.ndarray:
        """Return a feature's values, (n, …shape), from a block of frames, uint8 (n, frame_length).

        The result is a view if the dtype is uint8 and ``frames`` has the layout's strides. Varints of one byte give a
        uint8 view, wider ones int64.
        """
        field = next(field for field in self.fields if field.name == name)
        return values_of(field, frames[:, place_of(field)])

    def fill(self, frames: Bytes, columns: Mapping[str, np.ndarray]) -> None:
        """Write some features' values, (n, …shape), into frames from :meth:`frames`, without checksums.

        Raises:
            SourceError: an integer is negative, or does not fit into its varint.
        """
        for field in self.fields:
            if field.name in columns:
                _put(frames[:, place_of(field)], field, columns[field.name])

    def records(self, frames: Bytes, _files: Sequence[bytes]) -> list[memoryview]:
        """Write the checksums into frames, and return the frames as bytes for a shard."""
        seal(frames)
        return [frames.data]


@dataclass(frozen=True)
class EncodedLayout:
    """The layout of a record that stores an image file.

    Attributes:
        decoded: the layout of the same records with pixels.
        fit: how decoded pixels are resized to the image shape; see :func:`podline.data.fitting.fitted`.
    """

    decoded: RecordLayout
    fit: Fit

    @cached_property
    def fields(self) -> tuple[FieldInfo, ...]:
        """The features; the image's ``offset`` is the start of its file, ``shape`` the shape of its decoded pixels."""
        image = next(field for field in self.decoded.fields if field.name == IMAGE)
        encoded = {"offset": self.record_length, "encoding": "file", "fit": self.fit}
        return (*self._others.fields, image.model_copy(update=encoded))

    @cached_property
    def record_length(self) -> int:
        """The number of bytes of a payload without the image file."""
        return self._others.record_length + len(_image_alone(b""))

    @property
    def frame_length(self) -> int:
        """The number of bytes of a record in a shard, payload and TFRecord's frame, without the image file."""
        return self.record_length + FRAME_BYTES

    @cached_property
    def _others(self) -> RecordLayout:
        return layout_of(field for field in self.decoded.fields if field.name != IMAGE)

    def records(self, frames: Bytes, files: Sequence[bytes]) -> list[bytes]:
        """Return the records of a shard; ``frames`` has all values but the images, ``files`` the image files."""
        places = {field.name: place_of(field) for field in self.decoded.fields}
        others = self._others.frames(len(frames))
        for field in self._others.fields:
            others[:, place_of(field)] = frames[:, places[field.name]]
        parts = zip(payloads(others), files, strict=True)
        return [framed(other.tobytes() + _image_alone(file)) for other, file in parts]


def layout_of(features: Iterable[Feature | FieldInfo]) -> RecordLayout:
    """Return the layout of records with some features; images are stored as pixels."""
    entries, fields = b"", []
    for feature in sorted(features, key=lambda feature: feature.name):
        field = FieldInfo(
            name=feature.name,
            dtype=feature.dtype,
            shape=feature.shape,
            encoding="varint" if feature.dtype == "int64" and feature.shape == () else "bytes",
            offset=0,
            width=feature.width,
        )
        kind, zero = _BYTES_LIST, bytes(size_of(field))
        if field.encoding == "varint":
            kind, zero = _INT64_LIST, varint(0, field.width)
        value = _delimited(kind, _delimited(_ONLY, zero))
        entries += _delimited(_ONLY, _delimited(_KEY, field.name.encode()) + _delimited(_VALUE, value))
        fields.append((field, len(entries) - len(zero)))  # an entry ends with its value
    template = _delimited(_ONLY, entries)
    before = len(template) - len(entries)
    return RecordLayout(
        tuple(field.model_copy(update={"offset": before + offset}) for field, offset in fields), template
    )


def stored_layout(features: Iterable[Feature | FieldInfo]) -> RecordLayout | EncodedLayout:
    """Return the layout of records with some features; an image with a ``fit`` is stored as a file."""
    every = tuple(features)
    layout = layout_of(every)
    fits: list[Fit] = [feature.fit for feature in every if feature.fit]
    return EncodedLayout(layout, fits[0]) if fits else layout


def label_feature(name: str, class_names: Sequence[str]) -> Feature:
    """Return the feature of a class label; its varint is as wide as the largest class number."""
    return Feature(name, "int64", (), len(varint(max(0, len(class_names) - 1))), class_names=tuple(class_names))


def values_of(field: FieldInfo, raw: Bytes) -> np.ndarray:
    """Convert the bytes of a field, uint8 (n, size), to values; see :meth:`RecordLayout.values`."""
    if field.encoding == "varint":
        if field.width == 1:
            return raw[:, 0]
        return (raw & np.uint8(0x7F)).astype(np.int64) @ (1 << _SHIFT * np.arange(field.width))
    if field.dtype != "uint8":
        raw = np.ascontiguousarray(raw).view(np.dtype(field.dtype).newbyteorder("<"))
    return raw.reshape(len(raw), *field.shape)


def place_of(field: FieldInfo) -> slice:
    """Return the columns of a block of frames that contain a field's value."""
    start = HEADER_BYTES + field.offset
    return slice(start, start + size_of(field))


def size_of(field: FieldInfo) -> int:
    """Return the number of bytes of a field's value."""
    if field.encoding == "varint":
        return field.width
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def _put(columns: Bytes, field: FieldInfo, values: np.ndarray) -> None:
    if field.encoding == "varint":
        limit = VARINT_LIMIT**field.width
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < limit:
            raise SourceError(
                f"{field.name} has values from {values.min()} to {values.max()}, expected 0 to {limit - 1}; "
                "correct the source"
            )
        for place in range(field.width - 1):
            columns[:, place] = values >> _SHIFT * place & 0x7F | 0x80
        columns[:, -1] = values >> _SHIFT * (field.width - 1)
    else:
        little = np.ascontiguousarray(values, np.dtype(field.dtype).newbyteorder("<"))
        columns[...] = little.reshape(len(values), -1).view(np.uint8)


def _image_alone(file: bytes) -> bytes:
    """Encode an Example that contains only an image file; the file's bytes come last."""
    feature = _delimited(_BYTES_LIST, _delimited(_ONLY, file, _WIDE), _WIDE)
    entry = _delimited(_KEY, IMAGE.encode()) + _delimited(_VALUE, feature, _WIDE)
    return _delimited(_ONLY, _delimited(_ONLY, entry, _WIDE), _WIDE)


def _delimited(number: int, value: bytes, width: int = 0) -> bytes:
    """Encode a length-delimited field: key, length, value."""
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(value), width) + value


def varint(value: int, width: int = 0) -> bytes:
    """Encode a base-128 varint: seven bits per byte, lowest first, the top bit set in all bytes but the last.

    Args:
        value: a non-negative integer.
        width: number of bytes to pad to; as short as possible by default.
    """
    groups = bytearray()
    while value >= VARINT_LIMIT or len(groups) + 1 < width:
        groups.append(value & 0x7F | 0x80)
        value >>= _SHIFT
    groups.append(value)
    return bytes(groups)
