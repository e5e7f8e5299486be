"""Build the manifest of a conversion from its source and written shards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from podline.data.pixels import PixelSums, add_up
from podline.data.planning import ShardPlans
from podline.data.records import stored_layout
from podline.data.shards import WrittenShard
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import converter_settings, fingerprint
from podline.documents.feature import Feature
from podline.documents.manifest import FileInfo, Manifest, SplitInfo
from podline.documents.shard_table import ShardInfo, ShardTable
from podline.stages.specs import ConvertSpec


def class_names_of(features: Iterable[Feature]) -> dict[str, tuple[str, ...]]:
    """Return the class names of each label feature."""
    return {feature.name: feature.class_names for feature in features if feature.class_names}


def manifest_of(
    spec: ConvertSpec, source: Source, splits: tuple[SplitInfo, ...], records: FileInfo, base: str
) -> Manifest:
    """Build the manifest of a version; ``base``: fingerprint of the version whose shards it also uses, or empty."""
    layout = stored_layout(source.features)
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
        records=records,
        base=base,
    )


class Written(NamedTuple):
    """The newly written shards of a split, with their class counts (int64) and pixel sums."""

    shards: ShardTable
    counts: npt.NDArray[np.int64]
    pixels: PixelSums


def written_splits(plans: ShardPlans, shards: Iterable[WrittenShard]) -> dict[str, Written]:
    """Group the written shards by split; ``shards`` must come in the order of the plans."""
    written = iter(shards)
    return {plan.name: _written(itertools.islice(written, plan.shards), plan.shards) for plan in plans.splits}


def _written(shards: Iterator[WrittenShard], count: int) -> Written:
    first = next(shards)
    counts, pixels = np.array(first.info.class_counts, np.int64), add_up([first.pixels])

    def infos() -> Iterator[ShardInfo]:
        nonlocal counts, pixels
        yield first.in_manifest(count)
        for shard in shards:
            counts += np.array(shard.info.class_counts, np.int64)
            pixels = add_up([pixels, shard.pixels])
            yield shard.in_manifest(count)

    return Written(ShardTable.of(infos()), counts, pixels)
