"""Counts the records of a data set frame by frame, with all checksums."""

from __future__ import annotations

from podline.data.tfrecord import count_records
from podline.documents.manifest import Manifest
from podline.errors import ArtifactError
from podline.plurals import plural
from podline.progress import Reporter
from podline.store.contract import Store


def count_splits(store: Store, folder: str, manifest: Manifest, reporter: Reporter) -> dict[str, int]:
    """Count the records of each split in its files; both checksums of each record are checked.

    Raises:
        ArtifactError: a damaged record, or a file with another number of records than the manifest says.
        StoreError: a file cannot be read.
    """
    shards = [(split, shard) for split in manifest.splits for shard in split.shards]
    counts = {split.name: 0 for split in manifest.splits}
    for done, (split, shard) in enumerate(shards, start=1):
        path = store.local(f"{folder}/{shard.file}")
        found = count_records(path)
        if found != shard.records:
            raise ArtifactError(
                f"{path} holds {plural(found, 'record')} vs {shard.records} in the manifest; convert again"
            )
        counts[split.name] += found
        reporter.progress(done, len(shards), "shards")
    return counts
