"""The manifest of a data set: every file, field and statistic. Published last.

It depends on the source's bytes and the converter's settings alone, so any number of workers writes the same one.
"""

from __future__ import annotations

import heapq
import itertools
import json
import posixpath
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from podline.documents.shard_table import FileInfo, JoinedShards, Shards, ShardTable
from podline.documents.skeleton import SKELETON, Skeleton
from podline.errors import ArtifactError
from podline.frozen import Frozen, JsonObject, is_object
from podline.kinds.shipped import USUAL_KIND
from podline.store import digests
from podline.store.contract import Listed, Store

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")
"""The splits of a data set. Most are without one to validate on: then some training examples are held out, or none."""
APART = tuple(reversed(list(itertools.combinations(SPLITS, 2))))
"""Pairs of splits that share no image. One that both have is left out of the first, those of the test split first."""
LAYOUT_VERSION = 1
MANIFEST = "manifest.json"
MANY_CLASSES = 128
# In a data set's folder: a folder with what is known of each shard.
SHARD_RECORDS = "shards"

Fit = Literal["letterbox", "crop", "squeeze"]
"""How a picture is fitted into a square; see :func:`podline.data.fitting.fitted`."""
FileFit = Fit | Literal["annotated"]
"""Likewise of the file that a record holds; an annotated image is letter-boxed in its annotated size."""


class FieldInfo(Frozen):
    """The place of one feature in every record's payload.

    Attributes:
        name: the feature's key in the tf.train.Example.
        dtype: a NumPy dtype name: ``uint8``, ``int64``, ``float32`` …
        shape: the feature's real shape; () for a scalar.
        encoding: ``bytes`` (raw little-endian, row-major), ``varint`` (an int64 of ``width`` bytes), or ``file``: an
            image's file, see :mod:`podline.data.records`.
        offset: first byte of the value, counted from the start of the payload (not of the TFRecord frame).
        width: bytes of a varint: one below 128, two below 16,384.
        fit: how a file becomes an image of that shape: as it was annotated, in COCO's letterbox, or as
            :func:`podline.data.fitting.fitted` does it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: Literal["bytes", "varint", "file"]
    offset: int
    width: int = Field(default=1, ge=1, exclude_if=lambda width: width == 1)
    fit: FileFit | None = Field(default=None, exclude_if=lambda fit: fit is None)


class OlderShards(Frozen):
    """Shards of an older version, in the folder of its ``fingerprint``."""

    fingerprint: str
    shards: Shards


class SplitInfo(Frozen):
    """One split; ``mean`` and ``std`` are per channel, of pixels in 0…255.

    ``records`` is the sum over its shards, unless it has shards of older versions: then the table of records says which
    records of these are its own, and in which order. ``content`` is a hash of the records in their order, of the user's
    own images. ``truth`` is the file that COCO's people are judged by, see :mod:`podline.data.sources.coco_truth`.
    """

    name: str
    records: int
    shards: Shards
    class_counts: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    older: tuple[OlderShards, ...] = Field(default=(), exclude_if=lambda older: not older)
    content: str = Field(default="", exclude_if=lambda content: not content)
    truth: FileInfo | None = Field(default=None, exclude_if=lambda truth: truth is None)

    @property
    def every_shard(self) -> ShardTable | JoinedShards:
        """The shards that the split needs, those of older versions first; names are as seen from its folder."""
        if not self.older:
            return self.shards
        older = ((f"../{each.fingerprint}/", each.shards) for each in self.older)
        return JoinedShards((*older, ("", self.shards)))

    @property
    def dead(self) -> int:
        """Return how many records of its shards the split has no more."""
        return sum(self.every_shard.lengths) - self.records


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
        description="bytes of every record's payload, without TFRecord's frame of 16 bytes and without an image's file"
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
    kind: str = Field(
        default=USUAL_KIND,
        exclude_if=lambda kind: kind == USUAL_KIND,
        description="of task: what records hold beside the image; left out where it is a class",
    )
    facts: JsonObject = Field(
        default_factory=dict,
        exclude_if=lambda facts: not facts,
        description="of the data set, which its kind alone needs: the skeleton of poses",
    )

    records: FileInfo | None = Field(
        default=None,
        exclude_if=lambda records: records is None,
        description="the table of records, of the user's own images; see podline.datasets.record_table",
    )
    base: str = Field(
        default="",
        exclude_if=lambda base: not base,
        description="the fingerprint of the version whose shards this one was added to",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Manifest:
        if self.read != self.written + len(self.quarantined):
            raise ValueError(f"read={self.read} vs written={self.written} + quarantined={len(self.quarantined)}")
        if self.written != sum(split.records for split in self.splits):
            raise ValueError(f"written={self.written} vs {sum(s.records for s in self.splits)} records in the splits")
        return self

    @property
    def skeleton(self) -> Skeleton:
        """The skeleton of the keypoints.

        Raises:
            ArtifactError: records have none.
        """
        if SKELETON not in self.facts:
            raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no skeleton: its kind is {self.kind}")
        return Skeleton.model_validate(self.facts[SKELETON])

    def split(self, name: str) -> SplitInfo:
        """Return the split of a name.

        Raises:
            ArtifactError: there is none.
        """
        for split in self.splits:
            if split.name == name:
                return split
        names = ", ".join(split.name for split in self.splits)
        raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no split {name!r}; it has {names}")

    def field(self, name: str) -> FieldInfo:
        """Return the field of a name.

        Raises:
            ArtifactError: there is none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        names = ", ".join(field.name for field in self.fields)
        raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no field {name!r}; it has {names}")

    def to_bytes(self) -> bytes:
        """Return the manifest as it is published, with its digest."""
        document = digests.with_digest(f"{self.folder}/{MANIFEST}", self.model_dump(mode="json"))
        return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()

    @property
    def folder(self) -> str:
        """The name, in the store, of the data set's folder."""
        return dataset_folder(self.dataset, self.fingerprint)

    @property
    def bytes(self) -> int:
        """Return the size of all shards, in bytes."""
        return sum(split.every_shard.bytes for split in self.splits)

    @property
    def files(self) -> Iterator[FileInfo]:
        """Yield the files of all splits by name: shards, their indexes, and what lies beside them.

        Those of older versions come first, as ``../FINGERPRINT/…``.
        """
        of_splits = ((file for shard in split.every_shard for file in shard.files) for split in self.splits)
        beside = [*(split.truth for split in self.splits if split.truth), *([self.records] if self.records else [])]
        if any(split.older for split in self.splits):
            found = {file.file: file for file in itertools.chain(*of_splits, beside)}
            return iter([found[name] for name in sorted(found)])
        return heapq.merge(*of_splits, *([file] for file in beside), key=lambda file: file.file)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) of every image."""
        return self.field("image").shape

    @property
    def has_validation(self) -> bool:
        """Return whether there is a split to validate on; then no training example is held out."""
        return any(split.name == VALIDATION for split in self.splits)

    @property
    def mean_colour(self) -> tuple[int, ...]:
        """That of the training split, 0…255 per channel: augmentation fills holes with it."""
        return tuple(round(mean) for mean in self.split(TRAIN).mean)


def dead_share(manifest: Manifest) -> float:
    """Return which share of the records in the data set's shards it has no more."""
    dead = sum(split.dead for split in manifest.splits)
    return dead / max(1, dead + manifest.written)


def split_in_words(split: str) -> str:
    """Return what the examples of a split are: ``training``, ``validation`` or ``test``."""
    return "training" if split == TRAIN else split


def dataset_folder(dataset: str, fingerprint: str) -> str:
    """Return the name, in the store, of a data set's folder."""
    return f"datasets/{dataset}/{fingerprint}"


def stored_name(folder: str, file: str) -> str:
    """Return the name in the store of a file of a data set, which may be one of an older version."""
    return posixpath.normpath(f"{folder}/{file}")


def shard_record(file: str) -> str:
    """Return the name, in a data set's folder, of a shard's record."""
    return f"{SHARD_RECORDS}/{file}.json"


def publish_manifest(store: Store, manifest: Manifest) -> str:
    """Publish a manifest; return its name.

    Raises:
        StoreError: the store cannot be written.
    """
    name = f"{manifest.folder}/{MANIFEST}"
    store.publish_bytes(name, manifest.to_bytes(), replace=True)
    return name


def listed_files(store: Store, manifest: Manifest) -> Iterator[tuple[FileInfo, Listed | None]]:
    """Yield the files of a data set by name, each as the store has it now; None is one that is gone.

    Raises:
        StoreError: the store cannot be listed.
    """
    for folder, files in itertools.groupby(manifest.files, lambda file: posixpath.split(file.file)[0]):
        listing = store.listing(stored_name(manifest.folder, folder))
        there = next(listing, None)
        for file in files:
            name = stored_name(manifest.folder, file.file)
            while there and there.name < name:
                there = next(listing, None)
            yield file, there if there and there.name == name else None


def read_manifest(store: Store, folder: str, digest: str = "") -> Manifest:
    """Return the verified manifest of a data set's folder.

    Args:
        store: the store.
        folder: the data set's in it.
        digest: the digest that a stage's spec names; empty is any.

    Raises:
        StoreError: there is none, or it cannot be read.
        ArtifactError: it is not a manifest of this layout version, not what was published, or not the one that is
            named.
    """
    name = f"{folder}/{MANIFEST}"
    manifest, found = _read(store, name)
    if manifest.folder != folder:
        raise ArtifactError(f"{store.where(name)} is that of {manifest.folder}; convert the data again")
    if digest and digest != found:
        raise ArtifactError(
            f"{store.where(name)} has the digest {found[:12]}… vs {digest[:12]}… that the stage was given: it is "
            "another manifest; give the command again to work with this one"
        )
    return manifest


def manifest_digest(store: Store, folder: str) -> str:
    """Return the digest by which specs name a data set's manifest.

    Raises:
        StoreError: there is no manifest, or it cannot be read.
        ArtifactError: it is not what was published.
    """
    return store.read_document(f"{folder}/{MANIFEST}")[1]


def _read(store: Store, name: str) -> tuple[Manifest, str]:
    document, digest = store.read_document(name)
    found = document.get("layout_version") if is_object(document) else None
    if found != LAYOUT_VERSION:
        raise ArtifactError(
            f"{store.where(name)}: layout version {found} vs {LAYOUT_VERSION} here; convert the data again"
        )
    try:
        return Manifest.model_validate(document), digest
    except ValueError as error:
        raise ArtifactError(f"{store.where(name)} is not a manifest ({error}); convert the data again") from error
