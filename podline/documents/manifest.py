"""The manifest of a data set: every file, field and statistic; published after all other files of the data set.

The manifest depends only on the source's bytes, the converter's settings and the version whose shards it reuses.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import posixpath
from collections.abc import Generator, Iterator, Sequence
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from podline.base.errors import ArtifactError, StoreError
from podline.base.frozen import Frozen, JsonObject, omitted
from podline.documents.reading import validated
from podline.documents.shard_table import FileInfo, JoinedShards, Shards, ShardTable
from podline.documents.skeleton import SKELETON, Skeleton
from podline.store import digests
from podline.store.contract import Listed, Store

USUAL_KIND = "classification"
"""The kind of task of data sets and recipes that name none."""
TRAINING, VALIDATION, TEST = SPLITS = ("train", "validation", "test")
"""The splits of a data set. Without a validation split, some training examples may be held out."""
APART = tuple(reversed(list(itertools.combinations(SPLITS, 2))))
"""Pairs of splits that must not share images. A shared image is removed from the first split of the pair."""
LAYOUT_VERSION = 1
MANIFEST = "manifest.json"
ORDER = "identity"
"""The value of ``converter['order']`` for records sorted by the images' identities; Podline 1.0 had another order."""
MANY_CLASSES = 128
# The folder, in a data set's folder, with a JSON document about each shard.
SHARD_RECORDS = "shards"
_FURTHER_SHARDS = 20

Fit = Literal["letterbox", "crop", "squeeze"]
"""How an image is fitted into a square; see :func:`podline.data.fitting.fitted`."""

# The start of a counter's name, such as "test images that nearly repeat a training image".
NEARLY_REPEAT = "images that nearly repeat"


class FieldInfo(Frozen):
    """The byte position and the encoding of a feature, the same in every record.

    Attributes:
        name: the feature's key in the tf.train.Example.
        dtype: a NumPy dtype name: ``uint8``, ``int64``, ``float32`` …
        shape: shape of the decoded value; () for a scalar.
        encoding: ``bytes`` (raw little-endian, row-major), ``varint`` (an int64 of ``width`` bytes), or ``file`` (an
            encoded image, see :mod:`podline.data.records`).
        offset: position of the value's first byte in the serialized tf.train.Example, without the TFRecord frame.
        width: number of bytes of a varint: 1 for values below 128, 2 for values below 16,384.
        fit: how an image file is fitted into this shape; see :func:`podline.data.fitting.fitted`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: Literal["bytes", "varint", "file"]
    offset: int
    width: int = omitted(1, ge=1)
    fit: Fit | None = omitted(None)


class OlderShards(Frozen):
    """Shards of an older version, in the folder of the version's ``fingerprint``."""

    fingerprint: str
    shards: Shards


class SplitInfo(Frozen):
    """One split of a data set.

    Attributes:
        name: ``train``, ``validation`` or ``test``.
        records: number of records. With shards of older versions, the table of records selects and orders them; else
            the split has all records of its shards.
        shards: the shards written by this version.
        class_counts: number of records of each class.
        mean: mean per channel, of pixels in 0…255.
        std: standard deviation per channel, of pixels in 0…255.
        older: shards of older versions that the split reuses.
        content: hash of the ordered records, for users' own images; else empty.
        truth: the file with annotated people for the evaluation, see :mod:`podline.data.people.truth`, or None.
    """

    name: str
    records: int
    shards: Shards
    class_counts: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    older: tuple[OlderShards, ...] = omitted(())
    content: str = omitted("")
    truth: FileInfo | None = omitted(None)

    @property
    def every_shard(self) -> ShardTable | JoinedShards:
        """All shards of the split, first those of older versions; file names are relative to the data set's folder."""
        if not self.older:
            return self.shards
        older = ((f"../{each.fingerprint}/", each.shards) for each in self.older)
        return JoinedShards((*older, ("", self.shards)))

    @property
    def dead(self) -> int:
        """Return the number of dead records: records in the split's shards that are no longer part of the split."""
        return sum(self.every_shard.lengths) - self.records


class SourceFile(Frozen):
    """A raw file of the data set; ``name`` is relative to the source."""

    name: str
    bytes: int
    sha256: str


class Quarantined(Frozen):
    """A source record that the conversion omitted: ``record`` identifies it (``data_batch_1[17]``)."""

    split: str
    record: str
    reason: str


Part = TypeVar("Part", FieldInfo, SplitInfo)


class Manifest(Frozen):
    """The contents of ``manifest.json``; ``read`` always equals ``written`` plus the number of ``quarantined``."""

    dataset: str
    fingerprint: str
    layout_version: int = LAYOUT_VERSION
    record_length: int = Field(
        description="bytes of a serialized tf.train.Example, without an image file and without TFRecord's 16-byte frame"
    )
    fields: tuple[FieldInfo, ...]
    class_names: tuple[str, ...]
    splits: tuple[SplitInfo, ...]
    source: tuple[SourceFile, ...]
    converter: dict[str, int | str] = Field(description="the settings that determine the shards' bytes")
    read: int
    written: int
    quarantined: tuple[Quarantined, ...]
    counted: dict[str, int] = omitted({}, description="rule → how often the converter applied it to written records")
    kind: str = omitted(
        USUAL_KIND, description="kind of task, which defines the targets in records; omitted for classification"
    )
    facts: JsonObject = omitted({}, description="facts that the kind of task needs, such as the skeleton of poses")
    records: FileInfo | None = omitted(None, description="the table of records; see podline.data.record_table")
    base: str = omitted("", description="the fingerprint of the version whose shards this one reuses")

    @model_validator(mode="after")
    def _adds_up(self) -> Manifest:
        if self.read != self.written + len(self.quarantined):
            raise ValueError(
                f"got read={self.read}, expected written={self.written} + {len(self.quarantined)} in quarantined"
            )
        if self.written != sum(split.records for split in self.splits):
            raise ValueError(f"got written={self.written}, expected {sum(s.records for s in self.splits)} as in splits")
        return self

    @property
    def skeleton(self) -> Skeleton:
        """The skeleton of the keypoints.

        Raises:
            ArtifactError: the records have no keypoints.
        """
        if SKELETON not in self.facts:
            raise ArtifactError(
                f"data set {self.dataset}/{self.fingerprint} is of the kind {self.kind} and has no skeleton; "
                "use a data set with keypoints"
            )
        return Skeleton.model_validate(self.facts[SKELETON])

    def split(self, name: str) -> SplitInfo:
        """Return the split with this name.

        Raises:
            ArtifactError: the split does not exist.
        """
        return self._named("split", name, self.splits)

    def field(self, name: str) -> FieldInfo:
        """Return the field with this name.

        Raises:
            ArtifactError: the field does not exist.
        """
        return self._named("field", name, self.fields)

    def _named(self, what: str, name: str, parts: Sequence[Part]) -> Part:
        found = {part.name: part for part in parts}
        if name in found:
            return found[name]
        there = ", ".join(found)
        raise ArtifactError(f"data set {self.dataset}/{self.fingerprint} has no {what} {name!r}; it has {there}")

    def to_bytes(self) -> bytes:
        """Encode the manifest for publication, with its digest."""
        document = digests.with_digest(f"{self.folder}/{MANIFEST}", self.model_dump(mode="json"))
        return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()

    @property
    def folder(self) -> str:
        """The store name of the data set's folder."""
        return dataset_folder(self.dataset, self.fingerprint)

    @property
    def bytes(self) -> int:
        """Return the size of all shards, older ones included and indexes excluded, in bytes."""
        return sum(split.every_shard.bytes for split in self.splits)

    @property
    def files(self) -> Iterator[FileInfo]:
        """Yield the files of all splits sorted by name: shards, indexes, truth files and the table of records.

        Files of older versions come first, named ``../FINGERPRINT/…``.
        """
        of_splits = ((file for shard in split.every_shard for file in shard.files) for split in self.splits)
        beside = [*(split.truth for split in self.splits if split.truth), *([self.records] if self.records else [])]
        if any(split.older for split in self.splits):
            found = {file.file: file for file in itertools.chain(*of_splits, beside)}
            return iter([found[name] for name in sorted(found)])
        return heapq.merge(*of_splits, *([file] for file in beside), key=lambda file: file.file)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The shape of every image: (height, width, channels)."""
        return self.field("image").shape

    @property
    def has_validation(self) -> bool:
        """Return whether there is a validation split; without one, training examples can be held out."""
        return any(split.name == VALIDATION for split in self.splits)

    @property
    def mean_colour(self) -> tuple[int, ...]:
        """The mean colour of the training split, 0…255 per channel, with which augmentation fills empty pixels."""
        return tuple(round(mean) for mean in self.split(TRAINING).mean)


def dead_share(manifest: Manifest) -> float:
    """Return the share of dead records in the data set's shards; see :meth:`SplitInfo.dead`."""
    dead = sum(split.dead for split in manifest.splits)
    return dead / max(1, dead + manifest.written)


def has_many_shards(manifest: Manifest) -> bool:
    """Return whether a data set has far more shards than a new conversion would write, as after many small changes."""
    limit, least = (int(manifest.converter[name]) for name in ("shard_bytes", "min_shards"))
    every = [split.every_shard for split in manifest.splits]
    needed = sum(max(least, -(-shards.bytes // limit)) for shards in every)
    return sum(map(len, every)) > 2 * needed + _FURTHER_SHARDS


def split_in_words(split: str) -> str:
    """Return the word for a split before "examples": ``training`` for ``train``, else the split's name."""
    return "training" if split == TRAINING else split


def dataset_folder(dataset: str, fingerprint: str) -> str:
    """Return the store name of a data set's folder."""
    return f"datasets/{dataset}/{fingerprint}"


def stored_name(folder: str, file: str) -> str:
    """Return the store name of a data set's file, given its name in the manifest (``../FINGERPRINT/…`` is resolved)."""
    return posixpath.normpath(f"{folder}/{file}")


def shard_record(file: str) -> str:
    """Return the name of the JSON document about a shard, relative to the data set's folder."""
    return f"{SHARD_RECORDS}/{file}.json"


def publish_manifest(store: Store, manifest: Manifest) -> str:
    """Publish a manifest; return its store name.

    Raises:
        StoreError: the store cannot be written.
    """
    name = f"{manifest.folder}/{MANIFEST}"
    store.publish_bytes(name, manifest.to_bytes(), replace=True)
    return name


def listed_files(store: Store, manifest: Manifest) -> Iterator[tuple[FileInfo, Listed | None]]:
    """Yield the files in a manifest sorted by name, each with its entry in the store's listing; None if missing.

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
        folder: the folder of the data set.
        digest: the digest in a stage's spec; empty accepts any manifest.

    Raises:
        StoreError: the manifest is missing, or cannot be read.
        ArtifactError: the file is not this folder's manifest of this layout version, or has changed.
    """
    name = f"{folder}/{MANIFEST}"
    manifest, found = _read(store, name)
    if manifest.folder != folder:
        raise ArtifactError(f"{store.where(name)} belongs to {manifest.folder}; convert the data again")
    if digest and digest != found:
        raise ArtifactError(
            f"{store.where(name)} has the digest {found[:12]}…, expected {digest[:12]}… as in the stage's spec: the "
            "manifest was replaced; run the command again to use the new one"
        )
    return manifest


def manifest_digest(store: Store, folder: str) -> str:
    """Return the digest of a data set's manifest, for the spec of a stage.

    Raises:
        StoreError: there is no manifest, or it cannot be read.
        ArtifactError: the manifest has changed.
    """
    with converted_first(store, name := f"{folder}/{MANIFEST}"):
        return store.read_document(name)[1]


@contextlib.contextmanager
def converted_first(store: Store, name: str) -> Generator[None, None, None]:
    """If the body reads the manifest ``name`` and the file does not exist, raise an error with the remedy."""
    try:
        yield
    except StoreError as error:
        if store.exists(name):
            raise
        raise StoreError(f"{store.where(name)} does not exist; run `podline convert` first") from error


def _read(store: Store, name: str) -> tuple[Manifest, str]:
    with converted_first(store, name):
        document, digest = store.read_document(name)
    found = document.get("layout_version")
    if found != LAYOUT_VERSION:
        raise ArtifactError(
            f"{store.where(name)} has layout version {found}, expected {LAYOUT_VERSION}; convert the data again"
        )
    return validated(document, Manifest, store.where(name), "a manifest", "convert the data again"), digest
