"""Convert raw data to sharded TFRecords: open, plan, ``Create(shard numbers) | Reshuffle | WriteShards``, publish.

Beam serves as a parallel loop: its collections contain only numbers, and all data are in the store. The plan is made
before the job starts. Plan and bytes depend only on the source and the settings, not on the engine or the number of
workers. Workers need access to the store and the installed code. While the job runs, the plan's tables are in the store
under ``jobs/<id>/``. With other engines than the local one, a job of the same form first decodes the images. A JSON
record of each shard is published next to the shard, and the driver builds the manifest from these records. A killed run
leaves complete shards, and the next run writes the others.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import apache_beam as beam

from podline.base.plurals import plural
from podline.base.progress import Reporter
from podline.beam_jobs.decoding import EngineDecoding
from podline.beam_jobs.engines import open_engine
from podline.beam_jobs.jobs import Job, JobContext, job_folder
from podline.beam_jobs.workers import LOOKS, WriteShards, tables_of
from podline.data.planning import ShardPlans, plan_shards
from podline.data.records import stored_layout
from podline.data.shards import RowsByPlace
from podline.data.sources.decoding import DECODING
from podline.data.sources.source import Source
from podline.data.versions.fingerprint import EffectiveSpec, effective, fingerprint, memory_of, source_of
from podline.data.versions.growth import Growth
from podline.data.versions.publishing import (
    complete_conversion,
    delete_orphans,
    growth_since,
    publish_dataset,
    publish_growth,
)
from podline.documents.manifest import SHARD_RECORDS, Quarantined, dataset_folder
from podline.recipes import datasets
from podline.recipes.official import remarks
from podline.settings.engines import LOCAL
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store.contract import Store
from podline.store.locks import Waiting
from podline.store.one_writer import writing
from podline.store.opening import open_store
from podline.store.prefetch import in_order

# A job is submitted in this many work items, if it has as many numbers.
_PIECES = 10_000


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Convert a raw data set; this is the conversion stage.

    Raises:
        SettingsError: settings or Beam options are invalid.
        SourceError: the source is missing or damaged, or belongs to another data set.
        StoreError: the store cannot be written.
        EngineError: the engine lacks software or refuses the job, or a worker has another release or a wrong clock.
        ChildKilledError: a worker process of the local engine was killed.
        EngineLostError: the engine lost workers, or does not answer.
    """
    with open_engine(spec) as engine:  # first: refuses invalid options before anything is written
        store = open_store(spec.root)
        store.sweep()
        wanted = effective(spec, store)
        with job_folder(store, wanted) as folder:
            return convert_in(Job(JobContext(spec.root, folder, spec.engine), store, reporter, engine), wanted)


def convert_in(job: Job, spec: EffectiveSpec) -> ConvertResult:
    """Convert a raw data set as part of a job; return the stage's result."""
    started, store, reporter = time.monotonic(), job.store, job.reporter
    memory = memory_of(spec, store)  # before reading, so that the next conversion detects changes made meanwhile
    reporter.log(f"reading {spec.source}")
    source = _open(job, spec).in_order(spec.seed)
    _report_notes(source, reporter)
    _warn_of_quarantined(reporter, source.quarantined)
    known = fingerprint(spec, source.files)
    folder = dataset_folder(spec.dataset, known)
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.using([folder]))
        writer = stack.enter_context(writing(store, folder, f"convert of {folder}", Waiting(reporter)))
        growth = stack.enter_context(growth_since(store, spec, source, known, job.context.folder, reporter))
        truths = source.publish_truths(store, folder)
        plans, reused = _write_shards(job, spec, source, folder, growth, writer.owner)
        names = publish_dataset(store, spec, source, truths, folder, plans, growth)
        beside, seconds = [f"{folder}/{name}" for name in names], time.monotonic() - started
        result = complete_conversion(store, spec, folder, beside, source, seconds, reused)
        if source.grows:
            publish_growth(store, spec.dataset, growth, reporter)
            delete_orphans(store, folder)
    memory.remember(result.fingerprint)
    return result


def _open(job: Job, spec: EffectiveSpec) -> Source:
    """Return the opened source; with an engine, its workers decode the images."""
    if spec.engine == LOCAL:
        return source_of(spec, job.store)
    before = DECODING.set(EngineDecoding(job.context, partial(_decode, job)))
    try:
        return source_of(spec, job.store)
    finally:
        DECODING.reset(before)


def _decode(job: Job, folder: str, count: int, step: beam.DoFn) -> None:
    def done() -> tuple[int, dict[str, float]]:
        return sum(name.endswith(f".{LOOKS}") for name in job.store.list(folder)), {}

    job.run(folder, partial(add_steps, count=count, step=step), "batches of images", count, done)


def _write_shards(
    job: Job, spec: EffectiveSpec, source: Source, folder: str, growth: Growth, writer: str
) -> tuple[ShardPlans, int]:
    """Write the missing shards; return all shard plans and the number of shards that already existed."""
    source, prefix = source.part(growth.new), growth.prefix(datasets.find(spec.dataset).base)
    if not source.sizes:
        return ShardPlans(prefix, ()), 0
    frame = stored_layout(source.features).frame_length + source.bytes_of_a_file
    plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
    tables, count = tables_of(job.context, folder), len(plans)
    of_a_shard, started = sum(source.sizes.values()) / count, time.monotonic()

    def versions() -> list[int]:
        listed = job.store.listing(f"{folder}/{SHARD_RECORDS}")
        return [hash(found.version) for found in listed]  # a number takes less memory

    def counted() -> tuple[int, int]:
        """Return the number of finished shards, and how many of them this conversion wrote."""
        there = versions()
        return len(there), sum(version not in before for version in there)

    def done() -> tuple[int, dict[str, float]]:
        there, written = counted()
        return there, {"records/s": written * of_a_shard / (time.monotonic() - started)}

    before = set(versions())

    filler = _publish_tables(job.store, source, plans, tables)
    step = WriteShards(job.context, folder, source, plans, filler, writer)
    job.run(tables, partial(add_steps, count=count, step=step), "shards", count, done)
    return plans, count - counted()[1]


def add_steps(pipeline: beam.Pipeline, count: int, step: beam.DoFn) -> None:
    """Add steps to a pipeline that process the numbers 0 … count-1.

    The numbers are sent as a limited number of ranges, so the job description stays small.
    """
    each = math.ceil(count / _PIECES)
    _ = (
        pipeline
        | "Plan" >> beam.Create([(first, min(first + each, count)) for first in range(0, count, each)])
        # tuple[int, int]: ranges of batch or shard numbers
        | "Spread" >> beam.Reshuffle()
        # as before, but any worker can take each range
        | "Make or find" >> beam.ParDo(step)
        # nothing: all results are in the store
    )


def _publish_tables(store: Store, source: Source, plans: ShardPlans, tables: str) -> RowsByPlace:
    """Publish each table of the plan as soon as it is made; return the object that fills records from them."""

    def publish(table: Path) -> None:
        store.publish_file(table, f"{tables}/{table.name}", replace=True, flush=False)
        table.unlink(missing_ok=True)

    with store.workspace("plan") as folder:
        filler, made = source.shard_tables(plans, folder)
        deque(in_order(publish, made, store.parallel), maxlen=0)
    return filler


def _report_notes(source: Source, reporter: Reporter) -> None:
    """Log the findings about the source, and warn of problems."""
    for line in source.notes():
        reporter.log(line)
    tell = reporter.log if source.official and source.official.official else reporter.warn
    for line in remarks(source.dataset, source.sizes, source.quarantined, source.official, source.contradicting):
        tell(line)
    for line in source.warnings:
        reporter.warn(line)


def _warn_of_quarantined(reporter: Reporter, quarantined: Sequence[Quarantined]) -> None:
    for split in dict.fromkeys(record.split for record in quarantined):
        left_out = [record for record in quarantined if record.split == split]
        reporter.warn(
            f"left out of the {split} split: {plural(len(left_out), 'record')}, listed in the manifest; the first is "
            f"{left_out[0].record}: {left_out[0].reason}"
        )
