"""A training of a flow as a job of Slurm: submitted, followed, cancelled; a second flow finds it by the run's name.

The result lies in the store, where both find it. Each process of the job is :mod:`podline.supervision.rank`; the events
of the chief come by a file in the store.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from podline.errors import PermanentError, PodlineError, SettingsError, WorkerLostError, from_json
from podline.progress import Listener, Reporter
from podline.settings import Settings
from podline.stages.specs import TrainResult, TrainSpec
from podline.stages.table import TRAIN
from podline.store.contract import BUCKET_SCHEME
from podline.store.opening import open_store
from podline.strategies import WORKERS
from podline.supervision import slurm

_POLL = 1.0
_ASK_SECONDS = 5.0  # squeue costs the controller more than a look at a file
_AWAY_SECONDS = 600.0  # a controller that restarts ends no job
_LATE_SECONDS = 5.0  # a shared folder may show the last lines late


def run_as_job(spec: TrainSpec, listener: Listener, machine: Settings, keeps: Callable[[], bool]) -> TrainResult:
    """Return a training's result: an earlier one if it is still whole, else that of a job.

    Args:
        spec: of the training.
        listener: gets the events of the chief.
        machine: the setting ``hosts`` says how many.
        keeps: asked when this process is to end: whether the job goes on without it, for a later start to find.

    Raises:
        SettingsError: Slurm is not there or refuses the job, or the store is in a bucket.
        PermanentError: the job was cancelled by somebody else.
        WorkerLostError: the job ended without a cause, or Slurm does not answer; it is asked again later.
        PodlineError: what the job raised, as the same class: of several hosts, the first cause.
    """
    reporter = Reporter(TRAIN.name, listener)
    listener({"event": "start", "stage": TRAIN.name})
    try:
        followed = _Followed(spec, reporter, listener)
        result = TRAIN.find(spec, reporter) or followed.result(machine.hosts, keeps)
    except PodlineError as error:
        listener({"event": "error", "stage": TRAIN.name, "error": error.to_json()})
        raise
    listener({"event": "result", "stage": TRAIN.name, "result": result.model_dump(mode="json")})
    return result


class _Followed:
    """A training whose job is submitted or found, and then followed to its end."""

    def __init__(self, spec: TrainSpec, reporter: Reporter, listener: Listener) -> None:
        if spec.root.startswith(BUCKET_SCHEME):
            raise SettingsError(
                f"launch=slurm: got root={spec.root}, expected a folder that all hosts share; choose one, or start "
                "deployments/slurm/train.sbatch by hand"
            )
        store = open_store(spec.root)
        self._root = store.uri  # absolute
        self._spec = spec.model_copy(update={"root": self._root, "strategy": WORKERS})
        self._files = str(store.own_folder("logs") / f"{TRAIN.name}-{spec.digest()[:12]}")
        self._reporter, self._listener = reporter, listener
        self._read = 0
        self._error: PodlineError | None = None

    def result(self, hosts: str, keeps: Callable[[], bool]) -> TrainResult:
        """Return the result of the job that goes on, else of a new one."""
        job = slurm.find(self._spec.run, self._root)
        number = job.number if job and job.goes_on else self._submit(hosts)
        how = "found" if job and job.goes_on else "submitted"
        self._reporter.log(f"{how} job {number} of Slurm, {self._spec.run}; it prints to {self._files}.{number}.log")
        try:
            ended = self._follow(number)
        except PodlineError:
            raise
        except BaseException:
            if not keeps():
                slurm.cancel(number)
                self._reporter.log(f"cancelled job {number} of Slurm")
            raise
        result = TRAIN.find(self._spec, self._reporter)
        if result is not None:
            return result.model_copy(update={"reused": False})
        if ended == slurm.CANCELLED:
            raise PermanentError(f"job {number} of Slurm was cancelled; what it had saved is kept")
        raise self._error or WorkerLostError(
            f"job {number} of Slurm: got state {ended} and no cause, expected a result; see {self._files}.{number}.log"
        )

    def _submit(self, hosts: str) -> str:
        file = Path(f"{self._files}.spec.json")
        file.write_text(self._spec.model_dump_json())
        rank = [sys.executable, "-P", "-m", "podline.supervision.rank", str(file), f"{self._files}.{{job}}.jsonl"]
        return slurm.submit(self._spec.run, self._root, rank, hosts, f"{self._files}.{{job}}.log")

    def _follow(self, number: str) -> str:
        """Pass on what the chief reports until the job has ended; return its last state."""
        events = Path(f"{self._files}.{number}.jsonl")
        heard = asked = time.monotonic()
        while True:
            self._pass_on(events)
            if time.monotonic() >= asked:
                asked = time.monotonic() + _ASK_SECONDS
                try:
                    job, heard = slurm.find(self._spec.run, self._root), time.monotonic()
                except WorkerLostError:
                    if time.monotonic() - heard > _AWAY_SECONDS:
                        raise
                    continue
                if job is None or job.number != number or job.ended:
                    break
                if job.state == "PENDING":
                    self._reporter.waiting(f"job {number} of Slurm waits ({job.reason})")
            time.sleep(_POLL)
        state = job.state if job and job.number == number else "unknown"
        deadline = time.monotonic() + _LATE_SECONDS
        while state != "COMPLETED" and self._error is None and time.monotonic() < deadline:
            self._pass_on(events)
            time.sleep(_POLL)
        return state

    def _pass_on(self, events: Path) -> None:
        with contextlib.suppress(FileNotFoundError), events.open("rb") as stream:
            stream.seek(self._read)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                event = json.loads(line)
                if event["event"] == "error":
                    self._error = self._error or from_json(event["error"])
                elif event["event"] in ("progress", "log", "waiting"):
                    self._listener(event)
