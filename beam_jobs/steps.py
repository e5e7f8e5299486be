"""The Beam step: each shard is written, unless it is there.

What travels to a worker is the numbers of a few shards. Everything else it finds in the store: the plan's tables, and
there it leaves the shard and its record. Pixels go from the raw file to the shard and nowhere else.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from dataclasses import dataclass, field

from podline import __version__
from podline.beam_jobs.runners import crossing_borders
from podline.data.planning import ShardPlan, ShardPlans
from podline.data.records import EncodedLayout, RecordLayout
from podline.data.shards import ShardFiller, WrittenShard, write_shard
from podline.documents.manifest import shard_record
from podline.engines import LOCAL
from podline.errors import ArtifactError, EngineError, PodlineError
from podline.store.contract import Store
from podline.store.opening import open_store

WORKERS = "workers"
_CLOCK_SECONDS = 120.0  # Google refuses credentials that were signed a few minutes off


@dataclass(frozen=True)
class Job:
    """What every shard of one conversion has in common.

    Attributes:
        root: the store.
        folder: the data set's folder in it.
        tables: the folder of the plan's tables in it.
        layout: of every record in its shard.
        classes: of the main label.
        plans: the shards.
        filler: makes their records.
        engine: where the job runs.
        host: the machine that starts it.
        release: of Podline there.
    """

    root: str
    folder: str
    tables: str
    layout: RecordLayout | EncodedLayout
    classes: int
    plans: ShardPlans
    filler: ShardFiller
    engine: str = LOCAL
    host: str = field(default_factory=socket.gethostname)
    release: str = __version__


@crossing_borders
def write_or_find(numbers: tuple[int, int], job: Job) -> None:
    """Write shards ``numbers[0]`` … ``numbers[1] - 1`` and their records, or find them.

    A shard is published before its record: a shard without one is written again.

    Raises:
        EngineError: this worker has another release of Podline, or its clock is wrong.
        StoreError: the store cannot be written.
        SourceError: a raw file cannot be read.
    """
    try:
        if job.engine != LOCAL:
            _begin(job.root, job.tables, job.release)
        for number in range(*numbers):
            _write_or_find(job.plans[number], job)
    except PodlineError as error:
        if socket.gethostname() == job.host:
            raise
        raise type(error)(f"on worker {socket.gethostname()}: {error}") from error


@functools.lru_cache(maxsize=1)
def _begin(root: str, tables: str, release: str) -> None:
    """Leave this process's name in the job's folder, once, and hold its clock against the store's.

    What another release writes may be other bytes; credentials are refused where a clock is wrong.
    """
    if release != __version__:
        raise EngineError(f"Podline is {__version__} here vs {release} where the job was started; install the same")
    store, name = open_store(root), f"{tables}/{WORKERS}/{socket.gethostname()}~{os.getpid()}"
    store.publish_bytes(name, b"", replace=True)
    found = store.find(name)
    off = time.time() - found.published if found else 0.0
    if abs(off) > _CLOCK_SECONDS:
        raise EngineError(f"the clock here is {off:+,.0f} s off the store's; set it, or let NTP do it")


def _write_or_find(plan: ShardPlan, job: Job) -> None:
    store = open_store(job.root)
    record = f"{job.folder}/{shard_record(plan.file)}"
    if _is_there(store, job.folder, record):
        return
    fill = job.filler.filler(plan, job.layout.decoded, store.local(f"{job.tables}/{job.filler.table(plan)}"))
    with store.workspace("shard") as workspace:
        written = write_shard(workspace / plan.file, plan, job.layout, job.classes, fill)
        # Before the conversion is complete all shards are flushed together; flushing each took a fifth of the time.
        for file in written.info.files:
            store.publish_file(workspace / file.file, f"{job.folder}/{file.file}", replace=True, flush=False)
    store.publish_json(record, written.model_dump(mode="json"), replace=True, flush=False)


def _is_there(store: Store, folder: str, record: str) -> bool:
    """Return whether an earlier run wrote a shard, and its checksums are still right."""
    if not store.exists(record):
        return False
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return False  # the record is damaged: write the shard again
    names = [(f"{folder}/{file.file}", file.sha256) for file in known.info.files]
    return all(store.exists(name) and store.sha256(name) == sha256 for name, sha256 in names)
