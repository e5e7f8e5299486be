"""Converts raw archives into sharded TFRecords: ``Create(shard tasks) → Reshuffle → write shard``.

The plan is made before the job starts and depends on the source and the settings alone; so do the bytes, whatever the
runner and however many its workers. Workers need the store, the raw files and the installed code: the plan's tables lie
in the store under ``jobs/<id>/`` while the job runs. Each shard's record is published beside it; from these, the driver
publishes the manifest. A run that is killed leaves whole shards; the next one goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam

from podline.beam_jobs.runners import open_pipeline, quiet, run
from podline.beam_jobs.steps import Job, write_or_find
from podline.cores import usable_cores
from podline.data.official import official_lines
from podline.data.planning import ShardPlan, plan_shards
from podline.data.shards import Task, WrittenShard
from podline.data.sources.duplicates import contradiction_lines
from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.remote import is_remote
from podline.data.sources.source import RawData, Remarks
from podline.data.tfds import tfds_names
from podline.datasets.draft import Draft, draft_of
from podline.datasets.fingerprint import memory_of, source_of
from podline.documents.completion import Artifact
from podline.documents.manifest import (
    MANIFEST,
    SHARD_RECORDS,
    Quarantined,
    publish_manifest,
    read_manifest,
    shard_record,
)
from podline.plurals import plural
from podline.progress import Reporter
from podline.recipes import datasets
from podline.stages.completed import complete
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.in_use import using
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_JOBS = "jobs"
# What a job that was killed left there is deleted by a later one.
_OLD_JOB_SECONDS = 7 * 24 * 3600
# A folder is listed for nothing; a bucket's listing is a request.
_POLL_SECONDS, _POLL_BUCKET_SECONDS = 0.2, 5.0


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Convert a raw data set; the conversion stage.

    Raises:
        SettingsError: settings or Beam options that cannot be.
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    started = time.monotonic()
    pipeline = open_pipeline(spec)
    store = open_store(spec.root)
    store.sweep()
    memory = memory_of(spec, store)  # first: what changes from here on is noticed by the next conversion
    reporter.log(f"reading {spec.source}")
    source, remarks = _looked_at(source_of(spec, store), spec, reporter)
    _tell_quarantined(reporter, source.quarantined)
    draft = draft_of(spec, source)
    with using(store, [draft.folder]):
        result = _converted(pipeline, store, spec, source, draft, remarks, started, reporter)
    memory.remember(result.fingerprint)
    return result


def _converted(
    pipeline: beam.Pipeline,
    store: Store,
    spec: ConvertSpec,
    source: RawData,
    draft: Draft,
    remarks: Remarks,
    started: float,
    reporter: Reporter,
) -> ConvertResult:
    """Write what is not there yet."""
    draft = dataclasses.replace(draft, truths=source.publish_truths(store, draft.folder))
    frame = draft.layout.frame_length + source.bytes_of_a_file
    prefix = datasets.find(spec.dataset).base
    plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
    shards = _Shards(store, draft.folder, plans)
    with _job_folder(store) as tables:

        def publish(table: Path) -> None:
            store.publish_file(table, f"{tables}/{table.name}", flush=False)

        with store.workspace("plan") as folder:
            tasks = source.shard_tasks(plans, spec.seed, folder, _threads(spec))
            deque(in_order(publish, folder.iterdir(), store.parallel), maxlen=0)
        job = Job(spec.root, draft.folder, tables, draft.layout, len(source.class_names))
        with quiet(), _progress(reporter, shards):
            build(pipeline, tasks, job)
            run(pipeline)
    _publish(store, draft, plans)
    _there, written = shards.present()
    reused = len(plans) - len(written)
    return _finish(store, spec, draft, remarks, time.monotonic() - started, reused)


@contextlib.contextmanager
def _job_folder(store: Store) -> Iterator[str]:
    """Yield a folder of the store for the plan's tables; it is emptied when the body ends."""
    for old in store.listing(_JOBS):
        if time.time() - old.published > _OLD_JOB_SECONDS:
            store.delete(old.name)
    name = f"{_JOBS}/{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        for table in store.list(name):
            store.delete(table)


class _Shards:
    """The shards of a conversion in the store, and which of them were written since this object was made."""

    def __init__(self, store: Store, folder: str, plans: Sequence[ShardPlan]) -> None:
        self.plans, self.store = plans, store
        self._names = {plan: (f"{folder}/{shard_record(plan.file)}", f"{folder}/{plan.file}") for plan in plans}
        self._folder = folder
        self._before = self._versions()

    def present(self) -> tuple[list[ShardPlan], list[ShardPlan]]:
        """Return the shards that have a record, and those of them that were written since."""
        now = self._versions()
        there = [plan for plan in self.plans if self._names[plan][0] in now]
        written = [plan for plan in there if any(now.get(name) != self._before.get(name) for name in self._names[plan])]
        return there, written

    def _versions(self) -> dict[str, str]:
        return {found.name: found.version for found in self.store.listing(self._folder)}


def _publish(store: Store, draft: Draft, plans: Sequence[ShardPlan]) -> None:
    """Publish what lies beside the shards, the manifest last; all facts are in the shards' records."""
    names = [f"{draft.folder}/{shard_record(plan.file)}" for plan in plans]
    shards = [WrittenShard.model_validate(record) for record in in_order(store.read_json, names, store.parallel)]
    for name, content in draft.documents(shards).items():
        store.publish_bytes(f"{draft.folder}/{name}", content, replace=True)
    publish_manifest(store, draft.manifest(shards))


def _looked_at(source: RawData, spec: ConvertSpec, reporter: Reporter) -> tuple[RawData, Remarks]:
    """Return what is to be converted; report what the look at the source found."""
    apart, remarks = source.looked_at()
    for line in remarks.notes:
        reporter.log(line)
    tell = reporter.log if remarks.official and remarks.official.official else reporter.warn
    for line in official_lines(source.dataset, source.sizes, remarks.official):
        tell(line)
    for line in contradiction_lines(remarks.contradicting):
        reporter.warn(line)
    refuse_left_out(spec.dataset, apart.left_out, spec.allow_left_out)
    return apart, remarks


def _threads(spec: ConvertSpec) -> int:
    """Return how many threads of a worker decode."""
    # The cores that the local runner's workers leave; how many another runner has is its own business.
    threads = 1 if spec.beam_options else max(1, usable_cores() // spec.workers)
    if is_remote(spec.source):  # they wait for the network more than they decode
        return max(threads, open_store(spec.source).parallel)
    return threads


def build(pipeline: beam.Pipeline, tasks: Sequence[Task], job: Job) -> None:
    """Add the conversion's steps to a pipeline."""
    _ = (
        pipeline
        | "Plan" >> beam.Create(tasks)
        # Task
        | "Spread" >> beam.Reshuffle()
        # Task, each free to go to any worker
        | "Write or find" >> beam.Map(write_or_find, job)
        # WrittenShard
    )


def _finish(
    store: Store, spec: ConvertSpec, draft: Draft, remarks: Remarks, seconds: float, reused: int
) -> ConvertResult:
    manifest = read_manifest(store, draft.folder)
    shards = manifest.shards
    result = ConvertResult(
        seconds=seconds,
        dataset=spec.dataset,
        fingerprint=manifest.fingerprint,
        folder=draft.folder,
        read=manifest.read,
        written=manifest.written,
        quarantined=len(manifest.quarantined),
        splits={split.name: split.records for split in manifest.splits},
        bytes=sum(shard.bytes for shard in shards),
        shards_written=len(shards) - reused,
        shards_reused=reused,
        official=remarks.official,
        contradicting=dict(remarks.contradicting),
    )
    there = {found.name: found for found in store.listing(draft.folder)}
    store.flush(there)
    beside = [f"{draft.folder}/{name}" for name in (*tfds_names(draft.class_names), MANIFEST)]
    files = [(f"{draft.folder}/{item.file}", item) for item in manifest.files]
    written = [
        Artifact(name=name, bytes=item.bytes, sha256=item.sha256, modified=there[name].published)
        for name, item in files
    ]
    records = [found for name, found in there.items() if name.startswith(f"{draft.folder}/{SHARD_RECORDS}/")]
    complete(store, draft.folder, spec, result, [*written, *beside], records)
    return result


def _tell_quarantined(reporter: Reporter, quarantined: Sequence[Quarantined]) -> None:
    for split in dict.fromkeys(record.split for record in quarantined):
        left_out = [record for record in quarantined if record.split == split]
        reporter.warn(
            f"left out of the {split} split: {plural(len(left_out), 'record')}; the manifest lists them, the first is "
            f"{left_out[0].record}: {left_out[0].reason}"
        )


@contextlib.contextmanager
def _progress(reporter: Reporter, shards: _Shards) -> Iterator[None]:
    """Report shards as they are finished, by whichever process, while the body runs."""
    started, ended = time.monotonic(), threading.Event()
    poll = _POLL_SECONDS if isinstance(shards.store, FolderStore) else _POLL_BUCKET_SECONDS

    def report(reported: int) -> int:
        there, written = shards.present()
        if len(there) != reported:
            rate = sum(plan.records for plan in written) / (time.monotonic() - started)
            reporter.progress(len(there), len(shards.plans), "shards", {"records/s": rate})
        return len(there)

    def watch() -> None:
        reported = 0
        while not ended.wait(poll):
            reported = report(reported)
        report(reported)

    reporter.progress(0, len(shards.plans), "shards")
    watcher = threading.Thread(target=watch, name="conversion progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
