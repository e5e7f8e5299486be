"""Makes the manifest of a conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podline.data.pixels import add_up
from podline.data.records import LABEL, stored_layout
from podline.data.shards import WrittenShard
from podline.data.sources.source import RawData
from podline.datasets.fingerprint import converter_settings, fingerprint
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.stages.specs import ConvertSpec


def class_names_of(source: RawData) -> dict[str, tuple[str, ...]]:
    """Return label feature → names of its classes, the main label first."""
    return {LABEL: source.class_names, **source.extra_class_names}


def manifest_of(
    spec: ConvertSpec, source: RawData, truths: Mapping[str, FileInfo], shards: Sequence[WrittenShard]
) -> Manifest:
    """Return the manifest of a source's data set: shards in any order, split → the file that people are judged by."""
    layout = stored_layout(source.features)
    splits = tuple(_split(name, shards, truths.get(name)) for name in source.sizes)
    return Manifest(
        dataset=spec.dataset,
        fingerprint=fingerprint(spec, source.files),
        record_length=layout.record_length,
        fields=layout.fields,
        class_names=source.class_names,
        splits=splits,
        source=source.files,
        converter=converter_settings(spec),
        read=source.read,
        written=sum(split.records for split in splits),
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
