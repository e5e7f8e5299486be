"""Raw archives become sharded TFRecords: ``Create(shard tasks) → Reshuffle → write shard → combine → publish``.

The plan is made before the job starts and depends on the source and the settings alone; so do the bytes, whatever the
runner and however many its workers. A run that is killed leaves whole shards; the next one goes on where it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam

from podline.beam_jobs.runners import open_pipeline, quiet, run
from podline.beam_jobs.steps import REUSED, Job, WriteOrFind, finished, publish
from podline.data.official import official_lines
from podline.data.planning import ShardPlan, plan_shards
from podline.data.shards import Task
from podline.data.sources.duplicates import contradiction_lines
from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.remote import is_remote
from podline.data.sources.source import RawData, Remarks
from podline.data.tfds import tfds_names
from podline.datasets.draft import Draft, draft_of
from podline.datasets.fingerprint import source_of
from podline.documents.completion import Artifact
from podline.documents.manifest import MANIFEST, SHARD_RECORDS, Quarantined, read_manifest
from podline.plurals import plural
from podline.progress import Reporter
from podline.recipes import datasets
from podline.stages.completed import complete
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store.contract import Store
from podline.store.in_use import using
from podline.store.opening import open_store
from podline.store.page_cache import may_keep

_POLL_SECONDS = 0.2


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Converts a raw data set; the conversion stage.

    Raises:
        SettingsError: settings or Beam options that cannot be.
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    started = time.monotonic()
    pipeline = open_pipeline(spec)
    store = open_store(spec.root)
    store.sweep()
    reporter.log(f"reading {spec.source}")
    source, remarks = _looked_at(source_of(spec, store), spec, reporter)
    _tell_quarantined(reporter, source.quarantined)
    draft = draft_of(spec, source)
    with using(store, [draft.folder]):
        return _converted(pipeline, store, spec, source, draft, remarks, started, reporter)


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
    """Writes what is not there yet."""
    draft = dataclasses.replace(draft, truths=source.publish_truths(store, draft.folder))
    frame = draft.stored.frame_length + source.bytes_of_a_file
    prefix = datasets.find(spec.dataset).base
    plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
    with store.workspace("plan") as tables, store.workspace("done") as done:
        # What goes to a bucket is read again at once, to be sent there.
        stays = is_remote(spec.root) or may_keep(frame * sum(source.sizes.values()))
        job = Job(spec.root, draft.folder, draft.layout, len(source.class_names), str(done), stays)
        with quiet(), _progress(reporter, plans, done):
            build(pipeline, source.shard_tasks(plans, spec.seed, tables, _threads(spec)), job, draft)
            run(pipeline)
        reused = list(finished(done).values()).count(REUSED)
    return _finish(store, spec, draft, remarks, time.monotonic() - started, reused)


def _looked_at(source: RawData, spec: ConvertSpec, reporter: Reporter) -> tuple[RawData, Remarks]:
    """What is to be converted, once what there is to say of the source is said."""
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
    """The threads of a worker that makes records of what has to be decoded."""
    # The cores that the local runner's workers leave; how many another runner has is its own business.
    threads = 1 if spec.beam_options else max(1, (os.cpu_count() or 1) // spec.workers)
    if is_remote(spec.source):  # they wait for the network more than they decode
        return max(threads, open_store(spec.source).parallel)
    return threads


def build(pipeline: beam.Pipeline, tasks: Sequence[Task], job: Job, draft: Draft) -> None:
    """Adds the conversion's steps to a pipeline."""
    _ = (
        pipeline
        | "Plan" >> beam.Create(tasks)
        # Task
        | "Spread" >> beam.Reshuffle()
        # Task, each free to go to any worker
        | "Write or find" >> beam.ParDo(WriteOrFind(job))
        # WrittenShard
        | "Gather" >> beam.combiners.ToList()
        # one list[WrittenShard], in any order
        | "Publish, manifest last" >> beam.Map(publish, job.root, draft)
        # the manifest's name
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
    beside = [f"{draft.folder}/{name}" for name in (*tfds_names(draft.class_names), MANIFEST)]
    files = [*shards, *(split.truth for split in manifest.splits if split.truth)]
    written = [Artifact(name=f"{draft.folder}/{item.file}", bytes=item.bytes, sha256=item.sha256) for item in files]
    records = store.listing(f"{draft.folder}/{SHARD_RECORDS}")
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
def _progress(reporter: Reporter, plans: Sequence[ShardPlan], done: Path) -> Iterator[None]:
    """Reports shards as they are finished, by whichever process, for as long as the body runs."""
    records = {plan.file: plan.records for plan in plans}
    started, ended = time.monotonic(), threading.Event()

    def report(reported: int) -> int:
        files = finished(done)
        if len(files) != reported:
            rate = sum(records[file] for file in files) / (time.monotonic() - started)
            reporter.progress(len(files), len(plans), "shards", {"records/s": rate})
        return len(files)

    def watch() -> None:
        reported = 0
        while not ended.wait(_POLL_SECONDS):
            reported = report(reported)
        report(reported)

    reporter.progress(0, len(plans), "shards")
    watcher = threading.Thread(target=watch, name="conversion progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
