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
from podline.data.records import IMAGE, Feature, RecordLayout, layout_of, place_of, varint
from podline.data.tfrecord import FRAME_BYTES, Bytes, framed, map_file, payloads
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


def read_index(path: Path, info: ShardInfo) -> npt.NDArray[np.int64]:
    """Read where a shard's records begin and where the last one ends, int64 (records + 1,).

    Raises:
        ArtifactError: the file is gone or not what the manifest says.
        StoreError: it cannot be read.
    """
    data = map_file(path)
    found, expected = hashlib.sha256(data.data).hexdigest(), info.index.sha256 if info.index else ""
    if found != expected:
        raise ArtifactError(f"{path} has sha256 {found} vs {expected} in the manifest; convert the data again")
    return data[-8 * (info.records + 1) :].view("<i8")


def decode_file(file: Bytes, field: FieldInfo, size: Sequence[int], out: npt.NDArray[np.uint8]) -> None:
    """Decode an image's file into its pixels, as the conversion did.

    Args:
        file: uint8, (n,).
        field: the manifest's, of the image.
        size: width and height of the image that was annotated, if it was.
        out: uint8, of the field's shape.

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
def decoders() -> ThreadPoolExecutor:
    """Return threads that decode, as many as there are cores, for all splits together."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="decode")
