"""A data set before its shards are written; the manifest is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from podline.data.encoded_records import EncodedLayout, stored_layout
from podline.data.pixels import add_up
from podline.data.records import LABEL, RecordLayout
from podline.data.shards import WrittenShard
from podline.data.sources.source import RawData
from podline.data.tfds import tfds_files
from podline.datasets.fingerprint import converter_settings, fingerprint
from podline.documents.manifest import FileInfo, Manifest, Quarantined, SourceFile, SplitInfo, dataset_folder
from podline.documents.skeleton import COCO, Skeleton
from podline.stages.specs import ConvertSpec


@dataclass(frozen=True)
class Draft:
    """What is known of a data set before its shards are: all of the manifest but its splits.

    Attributes:
        dataset: its name.
        fingerprint: of its inputs.
        layout: of its records.
        class_names: label feature → names of its classes, the main label first.
        files: the raw files.
        converter: the settings that the bytes depend on.
        splits: their names, in order.
        read: how many records the raw files hold.
        quarantined: those that are left out.
        counted: rule → how often it was applied to those that are not.
        skeleton: of the keypoints, if there are any.
        truths: split → the file, published already, that its people are judged by.
    """

    dataset: str
    fingerprint: str
    layout: RecordLayout | EncodedLayout
    class_names: dict[str, tuple[str, ...]]
    files: tuple[SourceFile, ...]
    converter: dict[str, int | str]
    splits: tuple[str, ...]
    read: int
    quarantined: tuple[Quarantined, ...]
    counted: dict[str, int]
    skeleton: Skeleton = COCO
    truths: dict[str, FileInfo] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The data set's folder in the store."""
        return dataset_folder(self.dataset, self.fingerprint)

    def manifest(self, shards: Sequence[WrittenShard]) -> Manifest:
        """Return the manifest of a data set with these shards; their order makes no difference."""
        splits = tuple(_split(name, shards, self.truths.get(name)) for name in self.splits)
        return Manifest(
            dataset=self.dataset,
            fingerprint=self.fingerprint,
            record_length=self.layout.record_length,
            fields=self.layout.fields,
            class_names=self.class_names[LABEL],
            splits=splits,
            source=self.files,
            converter=self.converter,
            read=self.read,
            written=sum(split.records for split in splits),
            quarantined=self.quarantined,
            counted=self.counted,
            skeleton=self.skeleton,
        )

    def documents(self, shards: Sequence[WrittenShard]) -> dict[str, bytes]:
        """Return the files that are to be published before the manifest."""
        return tfds_files(self.manifest(shards), self.class_names)


def draft_of(spec: ConvertSpec, source: RawData) -> Draft:
    """Draft the data set that a spec and its source will become."""
    return Draft(
        dataset=spec.dataset,
        fingerprint=fingerprint(spec, source.files),
        layout=stored_layout(source.features),
        class_names={LABEL: source.class_names, **source.extra_class_names},
        files=source.files,
        converter=converter_settings(spec),
        splits=tuple(source.sizes),
        read=source.read,
        quarantined=source.quarantined,
        counted=source.counted,
        skeleton=source.skeleton,
    )


def _split(name: str, shards: Sequence[WrittenShard], truth: FileInfo | None) -> SplitInfo:
    mine = sorted((shard for shard in shards if shard.split == name), key=lambda shard: shard.info.file)
    pixels = add_up(shard.pixels for shard in mine)
    counts = zip(*(shard.info.class_counts for shard in mine), strict=True)
    return SplitInfo(
        name=name,
        records=sum(shard.info.records for shard in mine),
        shards=tuple(shard.in_manifest for shard in mine),
        class_counts=tuple(map(sum, counts)),
        mean=pixels.mean,
        std=pixels.std,
        truth=truth,
    )
