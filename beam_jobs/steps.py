"""The Beam step: each shard is written, unless it is there.

What travels to a worker is a :class:`~podline.data.shards.Task` of a few hundred bytes. Everything else it finds in the
store: the plan's tables, and there it leaves the shard and its record. Pixels go from the raw file to the shard and
nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from podline.beam_jobs.runners import crossing_borders
from podline.data.encoded_records import EncodedLayout
from podline.data.records import RecordLayout
from podline.data.shards import Task, WrittenShard, write_shard
from podline.documents.manifest import shard_record
from podline.errors import ArtifactError
from podline.store.contract import Store
from podline.store.opening import open_store


@dataclass(frozen=True)
class Job:
    """What every shard of one conversion has in common.

    Attributes:
        root: the store.
        folder: the data set's folder in it.
        tables: the folder of the plan's tables in it.
        layout: of every record in its shard.
        classes: of the main label.
    """

    root: str
    folder: str
    tables: str
    layout: RecordLayout | EncodedLayout
    classes: int


@crossing_borders
def write_or_find(task: Task, job: Job) -> WrittenShard:
    """Write a shard and its record, or find both.

    The shard is published before its record: a shard without one is written again.

    Raises:
        StoreError: the store cannot be written.
        SourceError: a raw file cannot be read.
    """
    store = open_store(job.root)
    record = f"{job.folder}/{shard_record(task.plan.file)}"
    found = _find(store, job.folder, record)
    if found is not None:
        return found
    fill = task.filler(job.layout.decoded, store.local(f"{job.tables}/{task.table}"))
    with store.workspace("shard") as workspace:
        written = write_shard(workspace / task.plan.file, task.plan, job.layout, job.classes, fill, task.threads)
        # Before the conversion is complete all shards are flushed together; flushing each took a fifth of the time.
        for file in written.info.files:
            store.publish_file(workspace / file.file, f"{job.folder}/{file.file}", replace=True, flush=False)
    store.publish_json(record, written.model_dump(mode="json"), replace=True, flush=False)
    return written


def _find(store: Store, folder: str, record: str) -> WrittenShard | None:
    """Return what an earlier run wrote, if its checksums are still right."""
    if not store.exists(record):
        return None
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return None  # the record is damaged: write the shard again
    names = [(f"{folder}/{file.file}", file.sha256) for file in known.info.files]
    return known if all(store.exists(name) and store.sha256(name) == sha256 for name, sha256 in names) else None
