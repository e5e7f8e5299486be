"""Records that hold an image's file, as it was, instead of its pixels: TFRecords of any length, read in any order.

Their payload is a ``tf.train.Example`` in two parts, which protocol buffers merge. The first is what a record without
the image is, of fixed length. The second is the image alone; the five lengths in it are varints of five bytes, so its
file begins at a known place too. Where records begin is in an array beside the shard.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from podline.cores import usable_cores
from podline.data.coco_letterbox import LetterBox
from podline.data.coco_pixels import decode
from podline.data.fitting import fitted
from podline.data.pictures import PictureError, picture_of
from podline.data.records import IMAGE, Feature, RecordLayout, elements, layout_of, place_of, size_of, varint
from podline.data.tfrecord import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    Bytes,
    damaged_record,
    framed,
    map_file,
    payloads,
    require_sound,
)
from podline.documents.manifest import FieldInfo, FileFit, FileInfo, Manifest, ShardInfo
from podline.errors import ArtifactError

SIZE = "size"
"""The feature that says an annotated image's own width and height."""

_WIDE = 5  # bytes of the varints that are not as short as they could be
_KEY = b"\x0a\x05" + IMAGE.encode()


@dataclass(frozen=True)
class EncodedLayout:
    """Where everything lies in a record that holds an image's file.

    Attributes:
        decoded: the layout of the same records with pixels.
        fit: how the file's image becomes these pixels.
    """

    decoded: RecordLayout
    fit: FileFit

    @cached_property
    def fields(self) -> tuple[FieldInfo, ...]:
        """The features; ``offset`` of the image is where its file starts, ``shape`` what it becomes."""
        image = next(field for field in self.decoded.fields if field.name == IMAGE)
        encoded = {"offset": self.record_length, "encoding": "file", "fit": self.fit}
        return (*self._others.fields, image.model_copy(update=encoded))

    @cached_property
    def record_length(self) -> int:
        """Bytes of a payload without the file."""
        return self._others.record_length + len(_before_file(0))

    @property
    def frame_length(self) -> int:
        """Bytes of a record in a shard without the file: payload and TFRecord's frame."""
        return self.record_length + FRAME_BYTES

    @cached_property
    def _others(self) -> RecordLayout:
        return layout_of(_feature(field) for field in self.decoded.fields if field.name != IMAGE)

    def records(self, frames: Bytes, files: Sequence[bytes]) -> list[bytes]:
        """Return each record as it is in a shard.

        Args:
            frames: uint8, (n, decoded.frame_length): the records with pixels.
            files: of their images.
        """
        places = {field.name: place_of(field) for field in self.decoded.fields}
        others = self._others.frames(len(frames))
        for field in self._others.fields:
            others[:, place_of(field)] = frames[:, places[field.name]]
        parts = zip(payloads(others), files, strict=True)
        return [framed(b"".join((other.tobytes(), _before_file(len(file)), file))) for other, file in parts]


def _before_file(size: int) -> bytes:
    """Return what stands before a file of some size in an Example with nothing but that image."""
    before = b""
    # From the inside out: the value, its bytes_list, the feature behind its key, the map's entry, the features.
    for prefix in (b"\x0a", b"\x0a", _KEY + b"\x12", b"\x0a", b"\x0a"):
        before = prefix + varint(size + len(before), _WIDE) + before
    return before


def stored_layout(features: Iterable[Feature]) -> RecordLayout | EncodedLayout:
    """Return the layout of records with some features; an image with a ``fit`` is held as its file."""
    every = tuple(features)
    layout = layout_of(every)
    fits: list[FileFit] = [feature.fit for feature in every if feature.fit]
    return EncodedLayout(layout, fits[0]) if fits else layout


def stored_layout_of(manifest: Manifest) -> RecordLayout | EncodedLayout:
    """Return the layout that a manifest's fields come from."""
    return stored_layout(map(_feature, manifest.fields))


def _feature(field: FieldInfo) -> Feature:
    return Feature(field.name, field.dtype, field.shape, field.width, field.fit)


def write_index(shard: Path, lengths: Sequence[int]) -> FileInfo:
    """Write, beside a shard's file, where its records begin and where the last one ends: int64, (records + 1,)."""
    path = shard.with_name(f"{shard.name}.index.npy")
    np.save(path, np.cumsum([0, *lengths], dtype="<i8"))
    data = path.read_bytes()
    return FileInfo(file=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class EncodedShard:
    """A shard of records with image files; see :class:`podline.data.open_shards.Shard`."""

    def __init__(self, path: Path, index: Path, info: ShardInfo, fields: Sequence[FieldInfo]) -> None:
        """Map both files.

        Args:
            path: the shard.
            index: the array of where its records begin.
            info: what the manifest says of both.
            fields: of its records.

        Raises:
            ArtifactError: one is gone or not what the manifest says.
            StoreError: one cannot be read.
        """
        self._path, self._data, self._fields = path, map_file(path), fields
        starts = map_file(index)
        found = hashlib.sha256(starts.data).hexdigest()
        if info.index is None or found != info.index.sha256:
            expected = info.index.sha256 if info.index else "none"
            raise ArtifactError(f"{index} has sha256 {found} vs {expected} in the manifest; convert the data again")
        if len(self._data) != info.bytes:
            raise ArtifactError(
                f"{path} has {len(self._data)} bytes vs {info.bytes} in the manifest; convert the data again"
            )
        self._starts = starts[-8 * (info.records + 1) :].view("<i8")
        self._checked = np.zeros(info.records, np.bool_)

    def __len__(self) -> int:
        return len(self._checked)

    def start(self, place: int) -> int:
        """Return the byte at which a record's frame starts."""
        return int(self._starts[place])

    def take(self, places: npt.NDArray[np.int64], fields: Sequence[FieldInfo]) -> list[np.ndarray]:
        """Return the fields' values of some records, images decoded."""
        for place in places[~self._checked[places]].tolist():
            require_sound(self._path, place, self.start(place), self._frame(place))
            self._checked[place] = True
        return [
            elements(field, self._images(places, field) if field.fit else self._values(places, field))
            for field in fields
        ]

    def _values(self, places: npt.NDArray[np.int64], field: FieldInfo) -> Bytes:
        begins = self._starts[places] + HEADER_BYTES + field.offset
        return self._data[begins[:, None] + np.arange(size_of(field))]

    def _images(self, places: npt.NDArray[np.int64], field: FieldInfo) -> Bytes:
        """Decode images side by side."""
        size = next((other for other in self._fields if other.name == SIZE), None)
        sizes = np.zeros((len(places), 2), np.int64) if size is None else self._values(places, size).view("<i8")
        images = np.empty((len(places), *field.shape), np.uint8)

        def put(place: int, size: Sequence[int], image: npt.NDArray[np.uint8]) -> None:
            file = self._frame(place)[HEADER_BYTES + field.offset : -FOOTER_BYTES]
            try:
                _decode(file, field, size, image)
            except PictureError as error:
                how = f"has an image that {error}"
                raise damaged_record(self._path, place, self.start(place), how) from error

        list(_threads().map(put, places.tolist(), sizes.tolist(), images))
        return images.reshape(len(places), -1)

    def _frame(self, place: int) -> Bytes:
        start, end = self._starts[place : place + 2]
        return self._data[start:end]


def _decode(file: Bytes, field: FieldInfo, size: Sequence[int], out: npt.NDArray[np.uint8]) -> None:
    """Decode an image's file into its pixels, as the conversion did.

    Raises:
        PictureError: it cannot be decoded.
    """
    if field.fit == "annotated":
        width, height = size
        pixels = decode(file, width, height)
        if pixels is None or pixels.shape != (height, width, 3):
            raise PictureError("cannot be decoded")
        LetterBox(width, height, out.shape[0]).place(pixels, out=out)
    elif field.fit:
        out[...] = fitted(picture_of(file.tobytes()).pixels, field.shape, field.fit)


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Threads that decode, as many as there are cores, for all shards together."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="decode")
