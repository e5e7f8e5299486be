"""The job of a conversion: its folder in the store, and its pipelines on an engine with their progress."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from podline import __version__
from podline.base.errors import PermanentError, PodlineError
from podline.base.progress import Reporter, beside
from podline.beam_jobs.engines import where
from podline.beam_jobs.runners import quiet, run
from podline.documents.versions import JOBS
from podline.settings.engines import LOCAL
from podline.stages.specs import ConvertSpec
from podline.store import digests
from podline.store.contract import Store, explained
from podline.store.folder import FolderStore
from podline.store.prefetch import in_order

WORKERS = "workers"
"""The subfolder of a job's folder with a file for each worker process."""

# A later job deletes another job's folder if its newest file has this age.
_OLD_JOB_SECONDS = 7 * 24 * 3600
# Seconds between two listings of finished items; listing a bucket costs a request.
_POLL_SECONDS, _POLL_BUCKET_SECONDS = 0.2, 5.0


@dataclass(frozen=True)
class JobContext:
    """The settings that all steps of a conversion's job share.

    Attributes:
        root: the location of the store.
        folder: the job's folder in the store.
        engine: the engine that runs the job.
        host: the machine that started the job.
        release: the version of Podline on that machine.
    """

    root: str
    folder: str
    engine: str = LOCAL
    host: str = field(default_factory=socket.gethostname)
    release: str = __version__


@dataclass(frozen=True)
class Job:
    """Runs pipelines on an engine, and reports their progress.

    Attributes:
        context: the settings that all steps share.
        store: the store of the data set.
        reporter: receives progress and warnings.
        engine: returns an empty pipeline with a given name.
    """

    context: JobContext
    store: Store
    reporter: Reporter
    engine: Callable[[str], beam.Pipeline]

    def run(
        self,
        folder: str,
        add: Callable[[beam.Pipeline], None],
        what: str,
        total: int,
        done: Callable[[], tuple[int, dict[str, float]]],
    ) -> None:
        """Run steps on the engine until they end, and report their progress.

        Args:
            folder: the store's folder with the input of the steps; the engine's job is named by its digest.
            add: adds the steps to a pipeline.
            what: the kind of item that the steps produce, for the progress report.
            total: the number of items.
            done: returns the number of finished items, and metrics for the progress report.
        """
        engine, jobs, reported = self.context.engine, list[PipelineResult](), list[tuple[int, str]]()

        def tell(job: PipelineResult) -> None:
            jobs.append(job)
            if engine != LOCAL:
                self.reporter.log(f"the engine {engine} accepted the job; {where(job, pipeline.options)}".rstrip("; "))

        def report() -> None:
            there, metrics = done()
            note = " ".join(f"{engine} {job.state} {where(job, pipeline.options)}".strip() for job in jobs)
            if engine == LOCAL:
                note = ""
            else:
                metrics["workers"] = len(self.store.list(f"{self.context.folder}/{WORKERS}"))
            if [(there, note)] != reported[-1:]:  # an unchanged report would count as progress
                reported.append((there, note))
                self.reporter.progress(there, total, what, metrics, note)

        self.reporter.progress(0, total, what)
        reported.append((0, ""))
        poll = _POLL_SECONDS if isinstance(self.store, FolderStore) else _POLL_BUCKET_SECONDS

        def look(_last: bool) -> float:
            began = time.monotonic()
            with contextlib.suppress(Exception):  # the store or service may be available again next time
                report()
            return max(poll, 10 * (time.monotonic() - began))  # listing a million shards takes minutes

        with quiet(), beside(look, poll, "conversion progress"):
            pipeline = self.engine(f"podline-{digests.of_json(folder)[:16]}")
            add(pipeline)
            run(pipeline, engine, tell, self.reporter.warn)


@contextlib.contextmanager
def job_folder(store: Store, spec: ConvertSpec) -> Iterator[str]:
    """Yield the store's folder for a conversion's job: a new one, or the folder of this machine's interrupted job.

    A local note file has the folder's name, so a machine continues only its own jobs. The folder is deleted when the
    conversion is done or fails with a permanent error, unless another process on this machine uses it. Before that,
    folders of any machine's jobs are deleted if nothing was written there for a week.
    """
    ours = digests.of_json([spec.digest(), spec.source, __version__])[:16]
    note = store.own_folder(JOBS) / ours
    with contextlib.ExitStack() as used:
        used.enter_context(store.using([ours]))  # first: the note's folder must not be deleted
        with explained("write to the store", note), note.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # else another process could read the note before it is written
            file.seek(0)
            if not (name := file.read()):
                name = f"{JOBS}/{ours}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
                file.write(name)
        for job, files in itertools.groupby(store.listing(JOBS), lambda file: "/".join(file.name.split("/")[:2])):
            newest = max(file.published for file in files)
            if job != name and time.time() - newest > _OLD_JOB_SECONDS:
                _delete_folder(store, job)
        goes_on = True
        try:
            yield name
            goes_on = False
        except PermanentError:
            goes_on = False
            raise
        finally:
            used.close()
            with contextlib.suppress(PodlineError), store.alone(ours) as free:
                if free and not goes_on:
                    _delete_folder(store, name)
                    note.unlink(missing_ok=True)


def _delete_folder(store: Store, folder: str) -> None:
    deque(in_order(lambda file: store.delete(file.name, file.version), store.listing(folder), store.parallel), maxlen=0)
