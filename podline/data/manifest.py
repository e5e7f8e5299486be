"""The manifest: what a data set's folder holds, to the byte. Published last: where it is, the rest is.

It depends on the source's bytes and the converter's settings alone, so any number of workers writes the same one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from podline.errors import ArtifactError
from podline.frozen import Frozen
from podline.storage import Store

LAYOUT_VERSION = 1
MANIFEST = "manifest.json"


class FieldInfo(Frozen):
    """Where one feature lies in every record's payload.

    Attributes:
        name: the feature's key in the tf.train.Example.
        dtype: a NumPy dtype name: ``uint8``, ``int64``, ``float32`` …
        shape: the feature's real shape; () for a scalar.
        encoding: ``bytes`` (raw little-endian, row-major), ``varint`` (one byte: an int64 below 128), or ``jpeg``: a
            file that becomes an image of that shape, see :mod:`podline.data.kept_jpegs`.
        offset: first byte of the value, counted from the start of the payload (not of the TFRecord frame).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: Literal["bytes", "varint", "jpeg"]
    offset: int


class ShardInfo(Frozen):
    """One TFRecord file."""

    file: str
    records: int
    bytes: int
    sha256: str
    class_counts: tuple[int, ...]


class FileInfo(Frozen):
    """A file beside the shards."""

    file: str
    bytes: int
    sha256: str


class SplitInfo(Frozen):
    """One split: ``records`` is the sum over its shards; ``mean`` and ``std`` are per channel, of pixels in 0…255.

    ``truth`` is the file that COCO's people are judged by, see :mod:`podline.data.coco_truth`.
    """

    name: str
    records: int
    shards: tuple[ShardInfo, ...]
    class_counts: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    truth: FileInfo | None = Field(default=None, exclude_if=lambda truth: truth is None)


class SourceFile(Frozen):
    """A raw file that the data set was made of; ``name`` is relative to the source."""

    name: str
    bytes: int
    sha256: str


class Quarantined(Frozen):
    """A source record that was left out: ``record`` leads back to it (``data_batch_1[17]``), ``reason`` says why."""

    split: str
    record: str
    reason: str


class Manifest(Frozen):
    """A data set. ``read = written + quarantined`` holds, always."""

    dataset: str
    fingerprint: str
    layout_version: int = LAYOUT_VERSION
    record_length: int = Field(
        description="bytes of every record's payload, without TFRecord's frame of 16 bytes and without a JPEG file"
    )
    fields: tuple[FieldInfo, ...]
    class_names: tuple[str, ...]
    splits: tuple[SplitInfo, ...]
    source: tuple[SourceFile, ...]
    converter: dict[str, int | str] = Field(description="the settings that the bytes depend on")
    read: int
    written: int
    quarantined: tuple[Quarantined, ...]
    counted: dict[str, int] = Field(
        default_factory=dict,
        exclude_if=lambda value: not value,
        description="rule → how often it was applied to records that are written",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Manifest:
        if self.read != self.written + len(self.quarantined):
            raise ValueError(f"read={self.read} vs written={self.written} + quarantined={len(self.quarantined)}")
        if self.written != sum(split.records for split in self.splits):
            raise ValueError(f"written={self.written} vs {sum(s.records for s in self.splits)} records in the splits")
        return self

    def split(self, name: str) -> SplitInfo:
        """The split of a name.

        Raises:
            ArtifactError: there is none.
        """
        for split in self.splits:
            if split.name == name:
                return split
        names = ", ".join(split.name for split in self.splits)
        raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no split {name!r}; it has {names}")

    def field(self, name: str) -> FieldInfo:
        """The field of a name.

        Raises:
            ArtifactError: there is none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        names = ", ".join(field.name for field in self.fields)
        raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no field {name!r}; it has {names}")

    def to_bytes(self) -> bytes:
        """The manifest as it is published."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    @property
    def shards(self) -> tuple[ShardInfo, ...]:
        """The shards of all splits, in order."""
        return tuple(shard for split in self.splits for shard in split.shards)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) of every image."""
        return self.field("image").shape


def dataset_folder(dataset: str, fingerprint: str) -> str:
    """The name, in the store, of a data set's folder."""
    return f"datasets/{dataset}/{fingerprint}"


def read_manifest(store: Store, folder: str) -> Manifest:
    """The manifest of a data set's folder.

    Raises:
        StoreError: there is none, or it cannot be read.
        ArtifactError: it is not a manifest of this layout version.
    """
    name = f"{folder}/{MANIFEST}"
    document = store.read_json(name)
    found = document.get("layout_version") if isinstance(document, dict) else None
    if found != LAYOUT_VERSION:
        raise ArtifactError(
            f"{store.where(name)}: layout version {found} vs {LAYOUT_VERSION} here; convert the data again"
        )
    try:
        return Manifest.model_validate(document)
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not a manifest ({error}); convert the data again") from error
