"""Converts raw data into sharded TFRecords: ``Create(numbers of shards) → Reshuffle → write shards``.

The plan is made before the job starts and depends on the source and the settings alone; so do the bytes, whatever the
engine and however many its workers. Workers need the store and the installed code: the plan's tables lie in the store
under ``jobs/<id>/`` while the job runs. Where workers are on other machines, so do raw pixels, and images, which a job
of the same form decodes before the plan is made. Each shard's record is published beside it; from these, the driver
publishes the manifest. A run that is killed leaves whole shards; the next one goes on where it was.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from podline.beam_jobs.decoding import OnEngine, add_steps
from podline.beam_jobs.engines import open_engine, where
from podline.beam_jobs.runners import quiet, run
from podline.beam_jobs.steps import LOOKS, WORKERS, Home, Job, write_or_find
from podline.data.official import official_lines
from podline.data.planning import ShardPlans, plan_shards
from podline.data.records import stored_layout
from podline.data.shards import ShardFiller, WrittenShard
from podline.data.sources.decoding import DECODING
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
    with open_engine(spec) as engine:  # first: options that cannot be are refused before anything is written
        store = open_store(spec.root)
        store.sweep()
        with _job_folder(store) as folder:
            return _Conversion(spec, reporter, store, engine, Home(spec.root, folder, spec.engine)).result()


@dataclass(frozen=True)
class _Conversion:
    """A conversion that runs.

    Attributes:
        spec: what is converted.
        reporter: is told.
        store: where to.
        engine: makes pipelines.
        home: of the job.
    """

    spec: ConvertSpec
    reporter: Reporter
    store: Store
    engine: Callable[[], beam.Pipeline]
    home: Home

    def result(self) -> ConvertResult:
        """Convert; return what is there then."""
        started = time.monotonic()
        memory = memory_of(self.spec, self.store)  # first: the next conversion notices what changes from here on
        self.reporter.log(f"reading {self.spec.source}")
        source, remarks = _looked_at(self._opened(), self.spec, self.reporter)
        _tell_quarantined(self.reporter, source.quarantined)
        folder = dataset_folder(self.spec.dataset, fingerprint(self.spec, source.files))
        with self.store.using([folder]):
            truths = source.publish_truths(self.store, folder)
            plans, reused = self._write(source, folder)
            _publish(self.store, self.spec, source, truths, folder, plans)
            beside = [f"{folder}/{name}" for name in (*tfds_names(class_names_of(source)), MANIFEST)]
            seconds = time.monotonic() - started
            result = _finish(self.store, self.spec, folder, beside, remarks, seconds, reused)
        memory.remember(result.fingerprint)
        return result

    def _opened(self) -> RawData:
        """Return the source; on an engine, its workers decode the images."""
        if self.spec.engine == LOCAL:
            return source_of(self.spec, self.store)
        before = DECODING.set(OnEngine(self.home, self._decode))
        try:
            return source_of(self.spec, self.store)
        finally:
            DECODING.reset(before)

    def _decode(self, folder: str, count: int, add: Callable[[beam.Pipeline], None]) -> None:
        def look() -> tuple[int, dict[str, float]]:
            return sum(name.endswith(f".{LOOKS}") for name in self.store.list(folder)), {}

        self._run(add, "batches of images", count, look)

    def _write(self, source: RawData, folder: str) -> tuple[ShardPlans, int]:
        """Write the shards that are not there yet; return all of them, and how many were there."""
        layout = stored_layout(source.features)
        frame = layout.frame_length + source.bytes_of_a_file
        prefix, spec = datasets.find(self.spec.dataset).base, self.spec
        plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
        shards, started = _Shards(self.store, folder, plans), time.monotonic()

        def look() -> tuple[int, dict[str, float]]:
            there, records = shards.look()
            return there, {"records/s": records / (time.monotonic() - started)}

        filler = self._publish_tables(source, plans)
        job = Job(self.home, folder, layout, len(source.class_names), plans, filler)
        self._run(lambda pipeline: add_steps(pipeline, len(plans), write_or_find, job), "shards", len(plans), look)
        return plans, len(plans) - shards.written()

    def _publish_tables(self, source: RawData, plans: ShardPlans) -> ShardFiller:
        """Publish the plan's tables, each as soon as it is made; return what makes records of them."""

        def publish(table: Path) -> None:
            self.store.publish_file(table, f"{self.home.folder}/{table.name}", flush=False)
            table.unlink(missing_ok=True)

        with self.store.workspace("plan") as folder:
            elsewhere = self.spec.engine != LOCAL
            filler, made = source.shard_tables(plans, self.spec.seed, folder, elsewhere=elsewhere)
            deque(in_order(publish, made, self.store.parallel), maxlen=0)
        return filler

    def _run(
        self,
        add: Callable[[beam.Pipeline], None],
        what: str,
        total: int,
        look: Callable[[], tuple[int, dict[str, float]]],
    ) -> None:
        """Run steps on the engine, and report how far they are.

        Args:
            add: adds the steps to a pipeline.
            what: they make.
            total: how many of it.
            look: returns how many of it are there, and what else there is to report.
        """
        workers = "" if self.spec.engine == LOCAL else f"{self.home.folder}/{WORKERS}"

        def looked() -> tuple[int, dict[str, float]]:
            there, metrics = look()
            return there, metrics | ({"workers": len(self.store.list(workers))} if workers else {})

        pause = _POLL_SECONDS if isinstance(self.store, FolderStore) else _POLL_BUCKET_SECONDS
        with quiet(), _progress(self.reporter, what, total, looked, pause):
            pipeline = self.engine()
            add(pipeline)
            run(pipeline, self.spec.engine, lambda job: _tell_engine(job, self.spec.engine, self.reporter))


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
        deque(in_order(store.delete, store.list(name), store.parallel), maxlen=0)


class _Shards:
    """The shards of a conversion that have a record in the store, and those written since this object was made."""

    def __init__(self, store: Store, folder: str, plans: ShardPlans) -> None:
        self._plans, self._store = plans, store
        self._folder = f"{folder}/{SHARD_RECORDS}"
        self._before = self._versions()

    def look(self) -> tuple[int, float]:
        """Return how many shards are there, and how many records were written, about."""
        now = self._versions()
        return len(now), self._new(now) * sum(split.records for split in self._plans.splits) / len(self._plans)

    def written(self) -> int:
        """Return how many shards were written."""
        return self._new(self._versions())

    def _new(self, now: Mapping[str, str]) -> int:
        return sum(self._before.get(name) != version for name, version in now.items())

    def _versions(self) -> dict[str, str]:
        return {found.name: found.version for found in self._store.listing(self._folder)}


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
def _progress(
    reporter: Reporter, what: str, total: int, look: Callable[[], tuple[int, dict[str, float]]], poll: float
) -> Iterator[None]:
    """Report what is finished, by whichever process, while the body runs; see :meth:`_Conversion._run`.

    Args:
        reporter: is told.
        what: is made.
        total: how many of it.
        look: returns how many of it are there, and what else there is to report.
        poll: seconds from one look to the next.
    """
    ended = threading.Event()

    def report(reported: int) -> int:
        there, metrics = look()
        if there != reported:
            reporter.progress(there, total, what, metrics)
        return there

    def watch() -> None:
        reported, pause = 0, poll
        while not ended.wait(pause):
            began = time.monotonic()
            reported = report(reported)
            pause = max(poll, 10 * (time.monotonic() - began))  # of a million shards a listing takes minutes
        report(reported)

    reporter.progress(0, total, what)
    watcher = threading.Thread(target=watch, name="conversion progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
