"""The Beam steps: each shard is written, or found written; then the manifest is published.

What travels to a worker is a :class:`~podline.data.shards.Task`, what travels back is a
:class:`~podline.data.shards.WrittenShard`: each a few hundred bytes. Beam would pickle and compress anything larger
several times over. Pixels go from the raw file to the shard and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from podline.beam_jobs.runners import crossing_borders
from podline.data.planning import ShardPlan
from podline.data.records import RecordLayout
from podline.data.shards import Task, Workbench, WrittenShard, write_shard
from podline.datasets.draft import Draft
from podline.documents.manifest import publish_manifest, shard_record
from podline.errors import ArtifactError
from podline.store.contract import Store, explained
from podline.store.opening import open_store

WRITTEN, REUSED = ".written", ".reused"  # a finished shard's mark is its file's name with one of these


@dataclass(frozen=True)
class Job:
    """What every shard of one conversion has in common.

    Attributes:
        root: the store.
        folder: the data set's folder in it.
        layout: of every record.
        classes: of the main label.
        done: an existing folder, of this run alone, in which each finished shard leaves a mark.
        stays: whether shards may stay in the page cache.
    """

    root: str
    folder: str
    layout: RecordLayout
    classes: int
    done: str
    stays: bool


class WriteOrFind(beam.DoFn):
    """Writes each shard, unless an earlier run left it whole; while one is being finished, the next is begun.

    The last records of a shard do not keep all threads busy, and its last bytes none: a tenth of the time where shards
    are small.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def setup(self) -> None:
        """Makes what does not travel to a worker."""
        self._pool = ThreadPoolExecutor(2)
        self._bench: Workbench | None = None

    def start_bundle(self) -> None:
        """Begins with nothing in the making."""
        self._pending: deque[Future[WrittenShard]] = deque()

    def process(self, task: Task) -> Iterator[WrittenShard]:
        """Begins with a shard, and gives the one before.

        Raises:
            StoreError: the store cannot be written.
            SourceError: a raw file cannot be read.
        """
        if self._bench is None:
            self._bench = Workbench(task.threads)  # every task's number
        self._pending.append(self._pool.submit(_write_or_find, task, self._job, self._bench))
        if len(self._pending) == 2:
            yield self._finished()

    # Beam declares that nothing comes of it, and takes what does.
    def finish_bundle(self) -> Iterator[WindowedValue]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gives the last shard.

        Raises:
            StoreError: the store cannot be written.
            SourceError: a raw file cannot be read.
        """
        while self._pending:
            yield GlobalWindows.windowed_value(self._finished())

    def teardown(self) -> None:
        """Lets the threads go."""
        self._pool.shutdown()
        if self._bench is not None:
            self._bench.close()

    @crossing_borders
    def _finished(self) -> WrittenShard:
        try:
            return self._pending.popleft().result()
        except BaseException:
            wait(self._pending)  # nobody is to write any more once the job has failed
            raise


def _write_or_find(task: Task, job: Job, bench: Workbench) -> WrittenShard:
    """Writes a shard, or finds it.

    The shard is published first, then what is known about it: a shard without that word is written again.

    Raises:
        StoreError: the store cannot be written.
        SourceError: a raw file cannot be read.
    """
    store = open_store(job.root)
    name, record = f"{job.folder}/{task.plan.file}", f"{job.folder}/{shard_record(task.plan.file)}"
    found = _known(store, record, name)
    if found is not None:
        _mark(job, task.plan, REUSED)
        return found
    with store.workspace("shard") as workspace:
        path = workspace / task.plan.file
        fill = task.filler(job.layout)
        written = write_shard(path, task.plan, job.layout, job.classes, fill, bench, stays=job.stays)
        # A shard is verified by its checksum before it is used again, and so is what is known about it: a word that a
        # power cut left half written is none. Waiting for the disk was a fifth of the time.
        store.publish_file(path, name, replace=True, flush=False)
    store.publish_json(record, written.model_dump(mode="json"), replace=True, flush=False)
    _mark(job, task.plan, WRITTEN)
    return written


@crossing_borders
def publish(shards: Sequence[WrittenShard], root: str, draft: Draft) -> str:
    """Publishes what lies beside the shards, the manifest last.

    Raises:
        StoreError: the store cannot be written.
    """
    store = open_store(root)
    for name, content in draft.documents(shards).items():
        store.publish_bytes(f"{draft.folder}/{name}", content, replace=True)
    return publish_manifest(store, draft.manifest(shards))


def finished(done: Path) -> dict[str, str]:
    """The shards that are finished, by the marks in :attr:`Job.done`: file → :data:`WRITTEN` or :data:`REUSED`."""
    return {mark.stem: mark.suffix for mark in done.iterdir()}


def _mark(job: Job, plan: ShardPlan, how: str) -> None:
    mark = Path(job.done) / f"{plan.file}{how}"
    with explained("write", mark):
        mark.touch()


def _known(store: Store, record: str, name: str) -> WrittenShard | None:
    """What an earlier run wrote, if it is there and its checksum is still right."""
    if not (store.exists(record) and store.exists(name)):
        return None
    try:
        known = WrittenShard.model_validate(store.read_json(record))
    except (ValueError, ArtifactError):
        return None  # its word is damaged: what is not known to be right is written again
    return known if store.sha256(name) == known.info.sha256 else None
