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
from typing import NamedTuple

import apache_beam as beam

from podline.beam_jobs.runners import open_pipeline, quiet, run
from podline.beam_jobs.steps import REUSED, Job, WriteOrFind, finished, publish
from podline.data.coco_records import CocoShardTask, coco_tasks
from podline.data.coco_truth import publish_truths
from podline.data.official import OfficialCheck, official_lines
from podline.data.planning import ShardPlan, plan_shards, refuse_shared_records
from podline.data.shards import ShardTask, shard_tasks
from podline.data.sources.coco import CocoSource
from podline.data.sources.duplicates import contradiction_lines, contradictions, quarantine_shared, repeated_images
from podline.data.sources.left_out import left_out_of, refuse_left_out
from podline.data.sources.official_sums import check_official
from podline.data.sources.remote import is_remote
from podline.data.sources.source import Source
from podline.data.tfds import tfds_names
from podline.datasets.draft import Draft, draft_of
from podline.datasets.fingerprint import source_of
from podline.documents.completion import Artifact
from podline.documents.manifest import MANIFEST, SHARD_RECORDS, Quarantined, converted_manifest
from podline.plurals import plural
from podline.progress import Reporter
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
    source = source_of(spec, store)
    found = _Found(None, {})
    if isinstance(source, Source):
        source, found = _looked_at(source, spec, reporter)
    _tell_quarantined(reporter, source.quarantined)
    draft = draft_of(spec, source)
    with using(store, [draft.folder]):
        return _converted(pipeline, store, spec, source, draft, found, started, reporter)


def _converted(
    pipeline: beam.Pipeline,
    store: Store,
    spec: ConvertSpec,
    source: Source | CocoSource,
    draft: Draft,
    found: _Found,
    started: float,
    reporter: Reporter,
) -> ConvertResult:
    """Writes what is not there yet."""
    if isinstance(source, CocoSource):
        draft = dataclasses.replace(draft, truths=publish_truths(store, draft.folder, source))
    frame = draft.stored.frame_length
    if isinstance(source, CocoSource) and spec.keep_jpeg:
        frame += source.bytes_of_a_file
    plans = plan_shards(spec.dataset, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
    with store.workspace("plan") as tables, store.workspace("done") as done:
        # What goes to a bucket is read again at once, to be sent there.
        stays = is_remote(spec.root) or may_keep(frame * sum(source.sizes.values()))
        job = Job(spec.root, draft.folder, draft.layout, len(source.class_names), str(done), stays)
        with quiet(), _progress(reporter, plans, done):
            build(pipeline, _tasks(source, plans, spec, tables), job, draft)
            run(pipeline)
        reused = list(finished(done).values()).count(REUSED)
    return _finish(store, spec, draft, found, time.monotonic() - started, reused)


class _Found(NamedTuple):
    """What is known of a source and is not in the manifest; see :class:`ConvertResult`."""

    official: OfficialCheck | None
    contradicting: dict[str, int]


def _looked_at(source: Source, spec: ConvertSpec, reporter: Reporter) -> tuple[Source, _Found]:
    """Raw pixels without those that both splits have, and what there is to say of them."""
    repeated = repeated_images(source)
    found = _Found(check_official(source), contradictions(source, repeated))
    read = {split.name: len(split) for split in source.splits}
    tell = reporter.log if found.official and found.official.official else reporter.warn
    for line in official_lines(source.dataset, read, found.official):
        tell(line)
    for line in contradiction_lines(found.contradicting):
        reporter.warn(line)
    source = quarantine_shared(source, repeated)
    refuse_left_out(spec.dataset, left_out_of(source), spec.allow_left_out)
    refuse_shared_records(source.splits)
    return source, found


def _tasks(
    source: Source | CocoSource, plans: Sequence[ShardPlan], spec: ConvertSpec, tables: Path
) -> Sequence[ShardTask | CocoShardTask]:
    if isinstance(source, Source):
        return shard_tasks(source, plans, spec.seed, tables)
    # The cores that the local runner's workers leave; how many another runner has is its own business.
    threads = 1 if spec.beam_options else max(1, (os.cpu_count() or 1) // spec.workers)
    if is_remote(spec.source):  # they wait for the network more than they decode
        threads = max(threads, open_store(spec.source).parallel)
    return coco_tasks(source, plans, spec.seed, tables, threads=threads, keep_jpeg=spec.keep_jpeg)


def build(pipeline: beam.Pipeline, tasks: Sequence[ShardTask | CocoShardTask], job: Job, draft: Draft) -> None:
    """Adds the conversion's steps to a pipeline."""
    _ = (
        pipeline
        | "Plan" >> beam.Create(tasks)
        # ShardTask
        | "Spread" >> beam.Reshuffle()
        # ShardTask, each free to go to any worker
        | "Write or find" >> beam.ParDo(WriteOrFind(job))
        # WrittenShard
        | "Gather" >> beam.combiners.ToList()
        # one list[WrittenShard], in any order
        | "Publish, manifest last" >> beam.Map(publish, job.root, draft)
        # the manifest's name
    )


def _finish(store: Store, spec: ConvertSpec, draft: Draft, found: _Found, seconds: float, reused: int) -> ConvertResult:
    manifest = converted_manifest(store, draft.folder)
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
        official=found.official,
        contradicting=found.contradicting,
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
