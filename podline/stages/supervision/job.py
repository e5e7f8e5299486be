"""Runs a flow's training as a job of Slurm or Ray: submits, follows and cancels it, and finds it by the run's name.

The result is in the store, which the job and the flow share. :mod:`podline.stages.supervision.rank` appends the chief's
events to a file in the store, which this module reads.
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
from podline.stages.supervision.ray_jobs import RayJobs
from podline.stages.supervision.slurm import CANCELLED, COMPLETED, PENDING, ScheduledJob, Slurm
from podline.stages.table import TRAIN
from podline.store.contract import BUCKET_SCHEME
from podline.store.opening import open_store

_POLL = 1.0
_ASK_SECONDS = 5.0  # asking the scheduler costs more than reading a file
_AWAY_SECONDS = 600.0  # jobs survive a restart of their scheduler
_LATE_SECONDS = 5.0  # in a shared folder, the last lines may appear late


def run_as_job(spec: TrainSpec, listener: Listener, machine: Settings, keeps: Callable[[], bool]) -> TrainResult:
    """Return a training's result: an earlier one whose files are unchanged, else that of a job.

    Args:
        spec: the training's spec.
        listener: gets the events of the chief.
        machine: settings; ``launch`` names the scheduler, ``hosts`` gives the number of hosts.
        keeps: called when this process is interrupted; returns whether the job continues, for a later start to find.

    Raises:
        SettingsError: the scheduler is not installed or refuses the job, or the store is in a bucket.
        CancelledError: somebody else cancelled the job.
        WorkerLostError: the job ended without an error of its own, or the scheduler did not answer.
        PodlineError: the job's error, with the same class; of several hosts, the first cause.
    """

    def work() -> TrainResult:
        reporter = Reporter(TRAIN.name, listener)
        followed = _Followed(spec, reporter, listener, machine)
        return TRAIN.find(spec, reporter) or followed.result(keeps)

    return report_stage(TRAIN.name, listener, work)


class _Followed:
    """A training that runs as a job: submits or finds the job, then follows it to its end."""

    def __init__(self, spec: TrainSpec, reporter: Reporter, listener: Listener, machine: Settings) -> None:
        if spec.root.startswith(BUCKET_SCHEME):
            raise SettingsError(
                f"launch={machine.launch}: got root={spec.root}, expected a folder that all hosts share; set root to "
                "one, or start each host's process by hand (docs/how-to/strategies.md)"
            )
        self._machine, address = machine, machine.launch.partition(":")[2]
        self._scheduler = RayJobs(address) if address else Slurm()
        store = open_store(spec.root)
        self._root = store.uri  # absolute
        if spec.strategy not in ("auto", WORKERS):
            reporter.warn(
                f"strategy={spec.strategy} has no effect: launch={machine.launch} trains with strategy={WORKERS}"
            )
        self._spec = spec.model_copy(update={"root": self._root, "strategy": WORKERS})
        self._files = str(store.own_folder("logs") / f"{TRAIN.name}-{spec.digest()[:12]}")
        self._output = f"{self._files}.{{job}}.log"
        self._reporter, self._listener = reporter, listener
        self._read = 0
        self._error: PodlineError | None = None

    def result(self, keeps: Callable[[], bool]) -> TrainResult:
        """Wait for the run's pending or running job, else submit one and wait for it; return the training's result."""
        found = self._scheduler.find(self._spec.run, self._root)
        goes_on = found is not None and found.goes_on
        number = found.number if found and goes_on else self._submit()
        job, where = f"job {number} of {self._scheduler.NAME}", self._scheduler.where(number, self._output)
        how = "found" if goes_on else "submitted"
        self._reporter.log(f"{how} {job} for {self._spec.run}; its output is in {where}")
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
            raise CancelledError(f"{job} was cancelled; its checkpoints are kept")
        raise self._error or WorkerLostError(
            f"{job} ended without result and without error: got state {ended.state} ({ended.reason}); see {where}"
        )

    def _cancel(self, number: str, shown: str) -> None:
        try:
            self._scheduler.cancel(number)
        except PodlineError as error:  # the flow ends all the same
            self._reporter.warn(f"{shown} could not be cancelled and continues; cancel it by hand: {one_line(error)}")
        else:
            self._reporter.log(f"cancelled {shown}")

    def _submit(self) -> str:
        file = Path(f"{self._files}.spec.json")
        file.write_text(self._spec.model_dump_json())
        command = [*self._scheduler.PROGRAM, str(file), f"{self._files}.{{job}}.jsonl"]
        return self._scheduler.submit(self._spec.run, self._root, command, self._machine, self._output)

    def _follow(self, number: str, shown: str) -> ScheduledJob:
        """Pass on the chief's events until the job has ended; return the job in its last state."""
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
