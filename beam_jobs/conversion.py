"""Converts raw data to sharded TFRecords: ``Create(shard numbers) → Reshuffle → write shards``.

The plan is made before the job starts. Like the bytes, it depends only on the source and the settings, not on the
engine or the number of workers. Workers need access to the store and the installed code; the plan's tables are in the
store under ``jobs/<id>/`` while the job runs. If workers run on other machines, the raw pixels are also stored there,
and images are first decoded by a job of the same form. A record is published next to each shard, and the driver makes
the manifest from these records. A run that is killed leaves complete shards, and the next run writes the rest.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from podline import __version__
from podline.beam_jobs.decoding import OnEngine, add_steps
from podline.beam_jobs.engines import open_engine, where
from podline.beam_jobs.runners import quiet, run
from podline.beam_jobs.steps import LOOKS, WORKERS, Home, Job, tables_of, write_or_find
from podline.data.images.opening import ImagesSource
from podline.data.official import contradiction_lines, official_lines, records_read
from podline.data.planning import ShardPlans, plan_shards
from podline.data.record_table import publish_records
from podline.data.records import stored_layout
from podline.data.shards import ShardFiller, WrittenShard
from podline.data.sources.decoding import DECODING
from podline.data.sources.source import RawData, Remarks
from podline.data.tfds import tfds_files
from podline.datasets.draft import class_names_of, manifest_of, written_splits
from podline.datasets.fingerprint import EffectiveSpec, effective, fingerprint, memory_of, source_of
from podline.datasets.growth import Growth, fitting_base, growth_of
from podline.datasets.record_names import NAMES, publish_names
from podline.documents.manifest import (
    MANIFEST,
    SHARD_RECORDS,
    FileInfo,
    Quarantined,
    dataset_folder,
    listed_files,
    publish_manifest,
    read_manifest,
    shard_record,
)
from podline.documents.versions import Version, publish_version, versions
from podline.engines import LOCAL
from podline.errors import PermanentError, PodlineError
from podline.plurals import plural
from podline.progress import Reporter, reported_by
from podline.recipes import datasets
from podline.stages.completed import complete
from podline.stages.specs import ConvertResult, ConvertSpec
from podline.store import digests
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store
from podline.store.prefetch import in_order

_JOBS = "jobs"
# A later job deletes what an interrupted job left behind, unless another job has continued it.
_OLD_JOB_SECONDS = 7 * 24 * 3600
# A folder is listed without cost; the listing of a bucket costs a request.
_POLL_SECONDS, _POLL_BUCKET_SECONDS = 0.2, 5.0


def convert(spec: ConvertSpec, reporter: Reporter) -> ConvertResult:
    """Convert a raw data set: the conversion stage.

    Raises:
        SettingsError: invalid settings or Beam options.
        SourceError: the source is missing or damaged, or it is a different data set.
        StoreError: the store is not writable.
    """
    with open_engine(spec) as engine:  # first: refuses invalid options before anything is written
        store = open_store(spec.root)
        store.sweep()
        wanted = effective(spec, store)
        with _job_folder(store, wanted) as folder, reported_by(reporter):
            return _Conversion(wanted, reporter, store, engine, Home(spec.root, folder, spec.engine)).result()


@dataclass(frozen=True)
class _Conversion:
    """A running conversion.

    Attributes:
        spec: the settings of the conversion.
        reporter: receives progress and warnings.
        store: the store of the data set.
        engine: creates pipelines.
        home: the raw data and settings of the job.
    """

    spec: EffectiveSpec
    reporter: Reporter
    store: Store
    engine: Callable[[str], beam.Pipeline]
    home: Home

    def result(self) -> ConvertResult:
        """Convert, and return the result."""
        started = time.monotonic()
        memory = memory_of(self.spec, self.store)  # first: the next conversion detects later changes
        self.reporter.log(f"reading {self.spec.source}")
        source = self._opened()
        remarks = _remarks(source, self.reporter)
        _tell_quarantined(self.reporter, source.quarantined)
        known = fingerprint(self.spec, source.files)
        folder = dataset_folder(self.spec.dataset, known)
        with self.store.using([folder]), self._growth(source, known) as growth:
            truths = source.publish_truths(self.store, folder)
            plans, reused = self._write(source, folder, growth)
            names = _publish(self.store, self.spec, source, truths, folder, plans, growth)
            beside = [f"{folder}/{name}" for name in names]
            seconds = time.monotonic() - started
            result = _finish(self.store, self.spec, folder, beside, remarks, seconds, reused)
            if growth:
                self._publish_version(growth)
        if growth:
            _delete_orphans(self.store, folder)
        memory.remember(result.fingerprint)
        return result

    @contextlib.contextmanager
    def _growth(self, source: RawData, known: str) -> Iterator[Growth | None]:
        """Yield how the user's own images extend an older version; None for other data.

        A folder with a manifest keeps its base version: runs refer to the manifest by its digest.
        """
        if not isinstance(source, ImagesSource):
            yield None
            return
        dataset, folder = self.spec.dataset, dataset_folder(self.spec.dataset, known)
        found = dict.fromkeys(version.fingerprint for version in reversed(versions(self.store, dataset)))
        others = bases = [other for other in found if other != known]
        if self.store.exists(f"{folder}/{MANIFEST}"):
            with contextlib.suppress(PodlineError):
                bases = [base for base in (read_manifest(self.store, folder).base,) if base]
        with self.store.using([dataset_folder(dataset, other) for other in {*others, *bases}]):
            base = fitting_base(self.store, self.spec, source, iter(bases))
            growth = growth_of(self.store, source, known, base)
            if others[:1] != bases[:1]:
                before = fitting_base(self.store, self.spec, source, iter(others))
                growth = replace(growth, before=before, changes=growth_of(self.store, source, known, before).changes)
            if growth.before:
                changed = ", ".join(f"{count:,} {what}" for what, count in growth.changes.items() if count)
                self.reporter.log(f"since version {growth.before.fingerprint}: {changed or 'the same records'}")
            elif others:
                self.reporter.log("all records will be written: no older version has these settings, classes and files")
            yield growth

    def _publish_version(self, growth: Growth) -> None:
        base = growth.before.fingerprint if growth.before else ""
        known, changes = growth.fingerprint, dict(growth.changes)
        version = Version(number=0, fingerprint=known, content=known, base=base, **changes)
        published = publish_version(self.store, self.spec.dataset, version)
        self.reporter.log(f"this is version {published.number}: {self.spec.dataset}@{published.number}")

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

        self._run(folder, add, "batches of images", count, look)

    def _write(self, source: RawData, folder: str, growth: Growth | None) -> tuple[ShardPlans, int]:
        """Write the missing shards; return all shard plans and the number of shards that already existed."""
        prefix, spec = datasets.find(self.spec.dataset).base, self.spec
        if growth and isinstance(source, ImagesSource):
            source, prefix = source.part(growth.new), growth.prefix(prefix)
            if not source.sizes:
                return ShardPlans(prefix, ()), 0
        layout = stored_layout(source.features)
        frame = layout.frame_length + source.bytes_of_a_file
        plans = plan_shards(prefix, source.sizes, frame, shard_bytes=spec.shard_bytes, min_shards=spec.min_shards)
        shards, started = _Shards(self.store, folder), time.monotonic()
        tables, count = tables_of(self.home, folder), len(plans)
        of_a_shard = sum(source.sizes.values()) / count

        def look() -> tuple[int, dict[str, float]]:
            there, written = shards.counted()
            return there, {"records/s": written * of_a_shard / (time.monotonic() - started)}

        filler = self._publish_tables(source, plans, tables)
        job = Job(self.home, folder, layout, source.kind, len(source.class_names), plans, filler)
        self._run(tables, lambda pipeline: add_steps(pipeline, count, write_or_find, job), "shards", count, look)
        return plans, count - shards.counted()[1]

    def _publish_tables(self, source: RawData, plans: ShardPlans, tables: str) -> ShardFiller:
        """Publish the plan's tables, each as soon as it is made; return the object that makes records from them."""

        def publish(table: Path) -> None:
            self.store.publish_file(table, f"{tables}/{table.name}", replace=True, flush=False)
            table.unlink(missing_ok=True)

        with self.store.workspace("plan") as folder:
            filler, made = source.shard_tables(plans, self.spec.seed, folder)
            deque(in_order(publish, made, self.store.parallel), maxlen=0)
        return filler

    def _run(
        self,
        folder: str,
        add: Callable[[beam.Pipeline], None],
        what: str,
        total: int,
        look: Callable[[], tuple[int, dict[str, float]]],
    ) -> None:
        """Run steps on the engine, and report their progress.

        Args:
            folder: the store's folder with their input; the engine's job has a distinct name for each folder.
            add: adds the steps to a pipeline.
            what: the kind of item that they produce.
            total: the number of items.
            look: returns the number of finished items, and a note for the report.
        """
        engine, jobs, reported = self.spec.engine, list[PipelineResult](), list[tuple[int, str]]()

        def tell(job: PipelineResult) -> None:
            jobs.append(job)
            if engine != LOCAL:
                self.reporter.log(f"the engine {engine} accepted the job; {where(job, pipeline.options)}".rstrip("; "))

        def report() -> None:
            there, metrics = look()
            note = " ".join(f"{engine} {job.state} {where(job, pipeline.options)}".strip() for job in jobs)
            if engine == LOCAL:
                note = ""
            else:
                metrics["workers"] = len(self.store.list(f"{self.home.folder}/{WORKERS}"))
            if [(there, note)] != reported[-1:]:  # a report without a change would look like progress
                reported.append((there, note))
                self.reporter.progress(there, total, what, metrics, note)

        self.reporter.progress(0, total, what)
        reported.append((0, ""))
        poll = _POLL_SECONDS if isinstance(self.store, FolderStore) else _POLL_BUCKET_SECONDS
        with quiet(), _again_and_again(report, poll):
            pipeline = self.engine(f"podline-{digests.of_json(folder)[:16]}")
            add(pipeline)
            run(pipeline, engine, tell, self.reporter.warn)


@contextlib.contextmanager
def _job_folder(store: Store, spec: ConvertSpec) -> Iterator[str]:
    """Yield the store's folder for a conversion's job: a new one, or that of an interrupted job, which is continued.

    The folder is emptied when the conversion is done or refused, unless another process on this machine uses it.
    """
    ours = digests.of_json([spec.digest(), spec.source, __version__])[:16]
    name = f"{_JOBS}/{ours}-{uuid.uuid4().hex}"
    for job, files in itertools.groupby(store.listing(_JOBS), lambda file: "/".join(file.name.split("/")[:2])):
        newest = max(file.published for file in files)
        if job.startswith(f"{_JOBS}/{ours}-"):
            name = job
        elif time.time() - newest > _OLD_JOB_SECONDS:
            _delete(store, job)
    goes_on = True
    try:
        with store.using([ours]):
            yield name
        goes_on = False
    except PermanentError:
        goes_on = False
        raise
    finally:
        with contextlib.suppress(PodlineError), store.alone(ours) as free:
            if free and not goes_on:
                _delete(store, name)


def _delete(store: Store, folder: str) -> None:
    _delete_files(store, (file.name for file in store.listing(folder)))


def _delete_files(store: Store, names: Iterable[str]) -> None:
    deque(in_order(store.delete, names, store.parallel), maxlen=0)


def _delete_orphans(store: Store, folder: str) -> None:
    """Delete shards in a finished folder that interrupted conversions with other base versions left there."""
    shards = [shard for split in read_manifest(store, folder).splits for shard in split.shards]
    kept = {f"{folder}/{shard_record(shard.file)}" for shard in shards}
    kept |= {f"{folder}/{file.file}" for shard in shards for file in shard.files}
    with store.alone(folder) as free:  # another conversion may be writing
        if free:
            there = (file.name for file in store.listing(folder))
            _delete_files(store, (name for name in there if ".tfrecord-" in name and name not in kept))


class _Shards:
    """Counts a conversion's shards with a record in the store, and those written since this object was created."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, f"{folder}/{SHARD_RECORDS}"
        self._before = set(self._versions())

    def counted(self) -> tuple[int, int]:
        """Return the number of finished shards, and the number that this conversion wrote."""
        there = written = 0
        for version in self._versions():
            there, written = there + 1, written + (version not in self._before)
        return there, written

    def _versions(self) -> Iterator[int]:
        return (hash(found.version) for found in self._store.listing(self._folder))  # a number takes less memory


def _publish(
    store: Store,
    spec: ConvertSpec,
    source: RawData,
    truths: Mapping[str, FileInfo],
    folder: str,
    plans: ShardPlans,
    growth: Growth | None,
) -> list[str]:
    """Publish the files next to the shards, the manifest last; return its names. Facts come from the shards' records.

    TFDS reads a data set whose shards are in a single folder.
    """
    names = (f"{folder}/{shard_record(plan.file)}" for plan in plans)
    shards = map(WrittenShard.model_validate, in_order(store.read_json, names, store.parallel))
    written, table, base = written_splits(plans, shards), None, ""
    if names_of_records := source.names(spec.seed):
        publish_names(store, folder, names_of_records)
    if growth:
        splits, sums = growth.infos(written)
        table, base = (
            publish_records(store, folder, growth.rows(written), sums),
            growth.base.fingerprint if growth.base else "",
        )
    else:
        splits = tuple(part.info(name, truths.get(name)) for name, part in written.items())
    manifest = manifest_of(spec, source, splits, table, base)
    beside = {} if base else tfds_files(manifest, class_names_of(source))
    for name, content in beside.items():
        store.publish_bytes(f"{folder}/{name}", content, replace=True)
    publish_manifest(store, manifest)
    return [*beside, *([table.file] if table else []), *([NAMES] if names_of_records else []), MANIFEST]


def _remarks(source: RawData, reporter: Reporter) -> Remarks:
    """Return the findings about the source, and report them."""
    remarks = source.remarks()
    for line in remarks.notes:
        reporter.log(line)
    tell = reporter.log if remarks.official and remarks.official.official else reporter.warn
    read = records_read(source.sizes, source.quarantined)
    for line in official_lines(source.dataset, read, remarks.official):
        tell(line)
    for line in contradiction_lines(remarks.contradicting):
        reporter.warn(line)
    return remarks


def _finish(
    store: Store, spec: ConvertSpec, folder: str, beside: list[str], remarks: Remarks, seconds: float, reused: int
) -> ConvertResult:
    manifest = read_manifest(store, folder)
    shards = sum(len(split.shards) for split in manifest.splits)
    result = ConvertResult(
        seconds=seconds,
        dataset=spec.dataset,
        fingerprint=manifest.fingerprint,
        folder=folder,
        read=manifest.read,
        written=manifest.written,
        quarantined=len(manifest.quarantined),
        splits={split.name: split.records for split in manifest.splits},
        bytes=manifest.bytes,
        shards_written=shards - reused,
        shards_reused=reused,
        official=remarks.official,
        contradicting=dict(remarks.contradicting),
    )
    store.flush(found.name for found in store.listing(folder))
    published = (found.published if found else 0.0 for _, found in listed_files(store, manifest))
    complete(store, folder, spec, result, beside, published=published)
    return result


def _tell_quarantined(reporter: Reporter, quarantined: Sequence[Quarantined]) -> None:
    for split in dict.fromkeys(record.split for record in quarantined):
        left_out = [record for record in quarantined if record.split == split]
        reporter.warn(
            f"left out of the {split} split: {plural(len(left_out), 'record')}; the manifest lists them, the first is "
            f"{left_out[0].record}: {left_out[0].reason}"
        )


@contextlib.contextmanager
def _again_and_again(report: Callable[[], None], poll: float) -> Iterator[None]:
    """Report what any process has finished, every ``poll`` seconds while the body runs and once at its end."""
    ended = threading.Event()

    def watch() -> None:
        pause = poll
        while True:
            last, began = ended.wait(pause), time.monotonic()
            with contextlib.suppress(Exception):  # the store or service may be available again at the next poll
                report()
            if last:
                return
            pause = max(poll, 10 * (time.monotonic() - began))  # listing a million shards takes minutes

    watcher = threading.Thread(target=watch, name="conversion progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
