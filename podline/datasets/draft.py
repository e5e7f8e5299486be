"""Makes the manifest of a conversion."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from podline.data.pixels import add_up
from podline.data.planning import ShardPlans
from podline.data.records import stored_layout
from podline.data.shards import WrittenShard
from podline.data.sources.source import RawData
from podline.datasets.fingerprint import converter_settings, fingerprint
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.stages.specs import ConvertSpec


def class_names_of(source: RawData) -> dict[str, tuple[str, ...]]:
    """Return feature → names of its classes, of all that are labels."""
    return {feature.name: feature.class_names for feature in source.features if feature.class_names}


def manifest_of(
    spec: ConvertSpec,
    source: RawData,
    truths: Mapping[str, FileInfo],
    plans: ShardPlans,
    shards: Iterable[WrittenShard],
) -> Manifest:
    """Return the manifest of a source's data set.

    Args:
        spec: of its conversion.
        source: of its records.
        truths: split → the file that people are judged by.
        plans: of its shards.
        shards: what they became, in that order; they are taken one after another.
    """
    layout, written = stored_layout(source.features), iter(shards)
    splits = tuple(
        _split(plan.name, itertools.islice(written, plan.shards), plan.shards, truths.get(plan.name))
        for plan in plans.splits
    )
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
        kind=source.kind,
        facts=source.facts,
    )


def _split(name: str, shards: Iterator[WrittenShard], count: int, truth: FileInfo | None) -> SplitInfo:
    """Return what the manifest says of a split of ``count`` shards."""
    first = next(shards)
    counts, pixels = np.array(first.info.class_counts, np.int64), add_up([first.pixels])

    def infos() -> Iterator[ShardInfo]:
        nonlocal counts, pixels
        yield first.in_manifest(count)
        for shard in shards:
            counts += np.array(shard.info.class_counts, np.int64)
            pixels = add_up([pixels, shard.pixels])
            yield shard.in_manifest(count)

    table = ShardTable.of(infos())
    return SplitInfo(
        name=name,
        records=table.records,
        shards=table,
        class_counts=tuple(counts.tolist()),
        mean=pixels.mean,
        std=pixels.std,
        truth=truth,
    )
