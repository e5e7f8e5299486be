"""Converts raw archives into sharded TFRecords: ``Create(numbers of shards) → Reshuffle → write shards``.

The plan is made before the job starts and depends on the source and the settings alone; so do the bytes, whatever the
engine and however many its workers. Workers need the store and the installed code: the plan's tables lie in the store
under ``jobs/<id>/`` while the job runs, with the raw pixels where workers are on other machines. Each shard's record is
published beside it; from these, the driver publishes the manifest. A run that is killed leaves whole shards; the next
one goes on where it was.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from podline.beam_jobs.engines import open_pipeline, where
from podline.beam_jobs.runners import quiet, run
from podline.beam_jobs.steps import WORKERS, Job, write_or_find
from podline.data.official import official_lines
from podline.data.planning import ShardPlans, plan_shards
from podline.data.records import stored_layout
from podline.data.shards import ShardFiller, WrittenShard
from podline.data.sources.duplicates import contradiction_lines
from podline.data.sources.left_out import refuse_left_out
from podline.data.sources.source import RawData, Remarks
from podline.data.tfds import tfds_files, tfds_names
from podline.datasets.draft import class_names_of, manifest_of
from podline.datasets.fingerprint import fingerprint, memory_of, source_of
from podline.documents.completion import Artifact
from podline.documents.manifest import (
    MANIFEST,
    SHARD_RECORDS,
    FileInfo,
    Quarantined,
    dataset_folder,
    publish_manifest,
    read_manifest,
    shard_record,
)
from podline.engines import LOCAL
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
# A job is given out in so many pieces, if there are shards for them.
_PIECES = 10_000
# A folder is listed for nothing; a bucket's listing is a request.
_POLL_SECONDS, _POLL_BUCKET_SECONDS = 0.2, 5.0


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Convert a raw data set; the conversion stage.

    Raises:
        SettingsError: settings or Beam options that cannot be.
        SourceError: the source is missing, damaged or another data set.
        StoreError: the store cannot be written.
    """
    with open_pipeline(spec) as pipeline:  # first: options that cannot be are refused before anything is written
        return _convert(pipeline, spec, reporter)


def _convert(pipeline: beam.Pipeline, spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    started = time.monotonic()
    store = open_store(spec.root)
    store.sweep()
    memory = memory_of(spec, store)  # first: what changes from here on is noticed by the next conversion
    reporter.log(f"reading {spec.source}")
    source, remarks = _looked_at(source_of(spec, store), spec, reporter)
    _tell_quarantined(reporter, source.quarantined)
    folder = dataset_folder(spec.dataset, fingerprint(spec, source.files))
    with using(store, [folder]):
        result = _converted(pipeline, store, spec, source, folder, remarks, started, reporter)
    memory.remember(result.fingerprint)
    return result


def _converted(
    pipeline: beam.Pipeline,
    store: Store,
    spec: ConvertSpec,
    source: RawData,
    folder: str,
    remarks: Remarks,
    started: float,
    reporter: Reporter,
) -> ConvertResult:
    """Write what is not there yet."""
    truths, layout = source.publish_truths(store, folder), stored_layout(source.features)
    frame = layout.frame_length + source.bytes_of_a_file
    prefix = datasets.find(spec.dataset).base
    plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
    shards = _Shards(store, folder, plans)
    with _job_folder(store) as tables:
        filler = _publish_tables(store, spec, source, plans, tables)
        job = Job(spec.root, folder, tables, layout, len(source.class_names), plans, filler, spec.engine)
        with quiet(), _progress(reporter, shards, "" if spec.engine == LOCAL else f"{tables}/{WORKERS}"):
            build(pipeline, job)
            run(pipeline, spec.engine, lambda started: _tell_engine(started, spec.engine, reporter))
        reused = len(plans) - shards.written()
    _publish(store, spec, source, truths, folder, plans)
    beside = [f"{folder}/{name}" for name in (*tfds_names(class_names_of(source)), MANIFEST)]
    return _finish(store, spec, folder, beside, remarks, time.monotonic() - started, reused)


def _publish_tables(store: Store, spec: ConvertSpec, source: RawData, plans: ShardPlans, tables: str) -> ShardFiller:
    """Publish the plan's tables, each as soon as it is made; return what makes records of them."""

    def publish(table: Path) -> None:
        store.publish_file(table, f"{tables}/{table.name}", flush=False)
        table.unlink(missing_ok=True)

    with store.workspace("plan") as folder:
        filler, made = source.shard_tables(plans, spec.seed, folder, elsewhere=spec.engine != LOCAL)
        deque(in_order(publish, made, store.parallel), maxlen=0)
    return filler


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
    """The shards of a conversion that have a record in the store, and those written since this object was made."""

    def __init__(self, store: Store, folder: str, plans: ShardPlans) -> None:
        self.plans, self.store = plans, store
        self._folder = f"{folder}/{SHARD_RECORDS}"
        self._before = self._versions()
        self.there, self.records = 0, 0.0

    def written(self) -> int:
        """Look again; return how many shards were written since; ``records`` of them, and ``there`` are so many."""
        now = self._versions()
        new = sum(self._before.get(name) != version for name, version in now.items())
        self.there = len(now)
        self.records = new * sum(split.records for split in self.plans.splits) / len(self.plans)
        return new

    def _versions(self) -> dict[str, str]:
        return {found.name: found.version for found in self.store.listing(self._folder)}


def _tell_engine(job: PipelineResult, engine: str, reporter: Reporter) -> None:
    """Report where the engine shows the job."""
    if engine != LOCAL:
        reporter.log(f"the engine {engine} has the job; {where(job)}".rstrip("; "))


def _publish(
    store: Store, spec: ConvertSpec, source: RawData, truths: Mapping[str, FileInfo], folder: str, plans: ShardPlans
) -> None:
    """Publish what lies beside the shards, the manifest last; all facts are in the shards' records."""
    names = [f"{folder}/{shard_record(plan.file)}" for plan in plans]
    shards = [WrittenShard.model_validate(record) for record in in_order(store.read_json, names, store.parallel)]
    manifest = manifest_of(spec, source, truths, shards)
    for name, content in tfds_files(manifest, class_names_of(source)).items():
        store.publish_bytes(f"{folder}/{name}", content, replace=True)
    publish_manifest(store, manifest)


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


def build(pipeline: beam.Pipeline, job: Job) -> None:
    """Add the conversion's steps to a pipeline; the description of a million shards is as small as that of 10,000."""
    count = len(job.plans)
    step = -(-count // _PIECES)
    _ = (
        pipeline
        | "Plan" >> beam.Create([(first, min(first + step, count)) for first in range(0, count, step)])
        # tuple[int, int]: numbers of shards
        | "Spread" >> beam.Reshuffle()
        # likewise, each free to go to any worker
        | "Write or find" >> beam.Map(write_or_find, job)
        # None: all that there is to know is in the store
    )


def _finish(
    store: Store, spec: ConvertSpec, folder: str, beside: list[str], remarks: Remarks, seconds: float, reused: int
) -> ConvertResult:
    manifest = read_manifest(store, folder)
    shards = manifest.shards
    result = ConvertResult(
        seconds=seconds,
        dataset=spec.dataset,
        fingerprint=manifest.fingerprint,
        folder=folder,
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
    there = {found.name: found for found in store.listing(folder)}
    store.flush(there)
    files = [(f"{folder}/{item.file}", item) for item in manifest.files]
    written = [
        Artifact(name=name, bytes=item.bytes, sha256=item.sha256, modified=there[name].published)
        for name, item in files
    ]
    records = [found for name, found in there.items() if name.startswith(f"{folder}/{SHARD_RECORDS}/")]
    complete(store, folder, spec, result, [*written, *beside], records)
    return result


def _tell_quarantined(reporter: Reporter, quarantined: Sequence[Quarantined]) -> None:
    for split in dict.fromkeys(record.split for record in quarantined):
        left_out = [record for record in quarantined if record.split == split]
        reporter.warn(
            f"left out of the {split} split: {plural(len(left_out), 'record')}; the manifest lists them, the first is "
            f"{left_out[0].record}: {left_out[0].reason}"
        )


@contextlib.contextmanager
def _progress(reporter: Reporter, shards: _Shards, workers: str) -> Iterator[None]:
    """Report shards as they are finished, by whichever process, while the body runs.

    Args:
        reporter: is told.
        shards: looked for.
        workers: the folder of the store in which workers leave their names; empty where they are not counted.
    """
    started, ended = time.monotonic(), threading.Event()
    poll = _POLL_SECONDS if isinstance(shards.store, FolderStore) else _POLL_BUCKET_SECONDS

    def report(reported: int) -> int:
        shards.written()
        if shards.there != reported:
            metrics = {"records/s": shards.records / (time.monotonic() - started)}
            if workers:
                metrics["workers"] = len(shards.store.list(workers))
            reporter.progress(shards.there, len(shards.plans), "shards", metrics)
        return shards.there

    def watch() -> None:
        reported, pause = 0, poll
        while not ended.wait(pause):
            began = time.monotonic()
            reported = report(reported)
            pause = max(poll, 10 * (time.monotonic() - began))  # of a million shards a listing takes minutes
        report(reported)

    reporter.progress(0, len(shards.plans), "shards")
    watcher = threading.Thread(target=watch, name="conversion progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
