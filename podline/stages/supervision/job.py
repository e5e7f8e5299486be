"""A training of a flow as a job of Slurm or Ray: submitted, followed, cancelled, and found again by the run's name.

The result lies in the store, where the job and each flow find it. The events of the chief come by a file in the store;
:mod:`podline.stages.supervision.rank` writes it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from podline.base.errors import CancelledError, PodlineError, SettingsError, WorkerLostError, from_json, one_line
from podline.base.progress import Listener, Reporter, from_line, report_stage
from podline.settings.machine import Settings
from podline.settings.strategies import WORKERS
from podline.stages.specs import TrainResult, TrainSpec
from podline.stages.supervision import slurm
from podline.stages.supervision.ray_jobs import RayJobs
from podline.stages.supervision.schedulers import CANCELLED, COMPLETED, PENDING, ScheduledJob, Scheduler
from podline.stages.table import TRAIN
from podline.store.contract import BUCKET_SCHEME
from podline.store.opening import open_store

_POLL = 1.0
_ASK_SECONDS = 5.0  # the question costs the scheduler more than a look at a file
_AWAY_SECONDS = 600.0  # a scheduler that restarts ends no job
_LATE_SECONDS = 5.0  # a shared folder may show the last lines late


def run_as_job(spec: TrainSpec, listener: Listener, machine: Settings, keeps: Callable[[], bool]) -> TrainResult:
    """Return a training's result: an earlier one if it is still whole, else that of a job.

    Args:
        spec: of the training.
        listener: gets the events of the chief.
        machine: the setting ``launch`` names the scheduler, ``hosts`` how many hosts.
        keeps: asked when this process is to end: whether the job goes on without it, for a later start to find.

    Raises:
        SettingsError: the scheduler is not there or refuses the job, or the store is in a bucket.
        CancelledError: the job was cancelled by somebody else.
        WorkerLostError: the job ended without a cause, or the scheduler does not answer; it is asked again later.
        PodlineError: what the job raised, as the same class: of several hosts, the first cause.
    """

    def work() -> TrainResult:
        reporter = Reporter(TRAIN.name, listener)
        followed = _Followed(spec, reporter, listener, machine)
        return TRAIN.find(spec, reporter) or followed.result(keeps)

    return report_stage(TRAIN.name, listener, work)


class _Followed:
    """A training whose job is submitted or found, and then followed to its end."""

    def __init__(self, spec: TrainSpec, reporter: Reporter, listener: Listener, machine: Settings) -> None:
        if spec.root.startswith(BUCKET_SCHEME):
            raise SettingsError(
                f"launch={machine.launch}: got root={spec.root}, expected a folder that all hosts share; choose one, "
                "or train on several hosts by hand"
            )
        self._machine, address = machine, machine.launch.partition(":")[2]
        self._scheduler: Scheduler = RayJobs(address) if address else slurm
        store = open_store(spec.root)
        self._root = store.uri  # absolute
        if spec.strategy not in ("auto", WORKERS):
            reporter.warn(
                f"strategy={spec.strategy} has no effect, as launch={machine.launch} trains with strategy={WORKERS}"
            )
        self._spec = spec.model_copy(update={"root": self._root, "strategy": WORKERS})
        self._files = str(store.own_folder("logs") / f"{TRAIN.name}-{spec.digest()[:12]}")
        self._output = f"{self._files}.{{job}}.log"
        self._reporter, self._listener = reporter, listener
        self._read = 0
        self._error: PodlineError | None = None

    def result(self, keeps: Callable[[], bool]) -> TrainResult:
        """Return the result of the job that goes on, else of a new one."""
        found = self._scheduler.find(self._spec.run, self._root)
        goes_on = found is not None and found.goes_on
        number = found.number if found and goes_on else self._submit()
        job, where = f"job {number} of {self._scheduler.NAME}", self._scheduler.where(number, self._output)
        how = "found" if goes_on else "submitted"
        self._reporter.log(f"{how} {job}, {self._spec.run}; it prints to {where}")
        try:
            ended = self._follow(number, job)
        except PodlineError:
            raise
        except BaseException:
            if not keeps():
                self._cancel(number, job)
            raise
        result = TRAIN.find(self._spec, self._reporter)
        if result is not None:
            return result.model_copy(update={"reused": False})
        if ended.state == CANCELLED:
            raise CancelledError(f"{job} was cancelled; what it had saved is kept")
        raise self._error or WorkerLostError(
            f"{job}: got state {ended.state} ({ended.reason}) and no cause, expected a result; see {where}"
        )

    def _cancel(self, number: str, shown: str) -> None:
        try:
            self._scheduler.cancel(number)
        except PodlineError as error:  # the flow ends all the same
            self._reporter.warn(f"{shown} goes on: {one_line(error)}")
        else:
            self._reporter.log(f"cancelled {shown}")

    def _submit(self) -> str:
        file = Path(f"{self._files}.spec.json")
        file.write_text(self._spec.model_dump_json())
        command = [*self._scheduler.PROGRAM, str(file), f"{self._files}.{{job}}.jsonl"]
        return self._scheduler.submit(self._spec.run, self._root, command, self._machine, self._output)

    def _follow(self, number: str, shown: str) -> ScheduledJob:
        """Pass on what the chief reports until the job has ended; return the job as it was then."""
        events = Path(f"{self._files}.{number}.jsonl")
        heard = asked = time.monotonic()
        while True:
            self._pass_on(events)
            if time.monotonic() >= asked:
                asked = time.monotonic() + _ASK_SECONDS
                try:
                    job, heard = self._scheduler.find(self._spec.run, self._root), time.monotonic()
                except WorkerLostError:
                    if time.monotonic() - heard > _AWAY_SECONDS:
                        raise
                    continue
                if job is None or job.number != number or job.ended:
                    break
                if job.state == PENDING:
                    self._reporter.waiting(f"{shown} waits ({job.reason})")
            time.sleep(_POLL)
        if job is None or job.number != number:
            job = ScheduledJob(number, "unknown", "the scheduler does not list it")
        deadline = time.monotonic() + _LATE_SECONDS
        while job.state != COMPLETED and self._error is None and time.monotonic() < deadline:
            self._pass_on(events)
            time.sleep(_POLL)
        return job

    def _pass_on(self, events: Path) -> None:
        with contextlib.suppress(FileNotFoundError), events.open("rb") as stream:
            stream.seek(self._read)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                event = from_line(line)
                if event["event"] == "error":
                    self._error = self._error or from_json(event["error"])
                elif event["event"] in ("progress", "log", "waiting"):
                    self._listener(event)
