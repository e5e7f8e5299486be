"""The stages as Prefect tasks: a task returns an earlier result, or runs the stage in a child process, with retries.

Each call searches the store for an earlier result. So a task run is Cached exactly if there is one with undamaged
artifacts. A damaged artifact makes its stage run again, and the next ones if its checksum, which they name, changes.

Prefect has one number of retries for all causes. Here the class of the error gives delays and budget. So the task
itself returns the state AwaitingRetry, which Prefect's engine waits for. Its message says why, when and how often.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger
from prefect.states import AwaitingRetry, Cancelled, Completed, Failed

from podline.base.errors import Budgets, PodlineError, PrunedError, Retry, one_line
from podline.base.progress import Listener, Reporter, terminal
from podline.base.stopwatch import measured
from podline.settings import environment
from podline.settings import machine as settings
from podline.stages.base import Result, Spec
from podline.stages.specs import TrainSpec
from podline.stages.supervision.job import run_as_job
from podline.stages.supervision.running import perform
from podline.stages.table import CONVERT, EVALUATE, LR_FIND, PACE, PROMOTE, REPORT, TRAIN, VALIDATE, Stage
from podline.tasks import stops
from podline.tasks.node import placed
from podline.tasks.shown import stage_listener
from podline.tasks.stops import in_form_words, message_of, tell_details

S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=Result)

_JITTER = 0.3
_CANCELLED = "cancelled with its run; what it had saved is kept, and Retry goes on from there"
_STOPPED = "stopped with its run, as planned; what it had saved is kept, and the run goes on from there"


class StageNotes(Protocol):
    """Records what the stages of a run do."""

    def asked(self, spec: Spec) -> None:
        """Note that a stage begins."""

    def retried(self, stage: str, error: BaseException, delay: float) -> None:
        """Note that a stage failed, and is tried again after ``delay`` seconds."""

    def answered(self, spec: Spec, result: Result, seconds: float) -> None:
        """Record the end of a stage; ``seconds`` is its duration this time."""


class _NoNotes(StageNotes):
    """Ignores all notes."""


@dataclass(frozen=True)
class StageTask(Generic[S, R]):
    """Calls a stage as a task of the flow that is running.

    Attributes:
        stage: the stage.
        about: a text that distinguishes its task runs from others of the same stage in a flow run.
    """

    stage: Stage[S, R]
    about: str = ""

    @property
    def title(self) -> str:
        """Return the name of its task runs."""
        return f"{self.stage.name}, {self.about}" if self.about else self.stage.name

    @measured("between")
    def __call__(self, spec: S, notes: StageNotes | None = None) -> R:
        """Return the stage's result.

        Args:
            spec: the input of the stage.
            notes: the record of the run.

        Raises:
            PodlineError: the error of the last attempt.
        """
        call, started = _Call(self.stage, spec, self.title, notes or _NoNotes()), time.monotonic()
        call.notes.asked(spec)
        named = attempt.with_options(name=self.stage.name, task_run_name=self.title, description=self.stage.title)
        state: State[Any] = named(call, return_state=True)
        if call.result is None:
            raise call.error or state.result(raise_on_failure=False)
        call.notes.answered(spec, call.result, time.monotonic() - started)
        return call.result


@dataclass
class _Call(Generic[S, R]):
    """One call of a stage, over all its attempts.

    Attributes:
        result: the stage's result, once there is one.
        error: the last attempt's error, unless it is a bug, which the task run's state has.
    """

    stage: Stage[S, R]
    spec: S
    title: str
    notes: StageNotes
    budgets: Budgets = field(default_factory=Budgets)
    attempts: int = 0
    result: R | None = None
    error: BaseException | None = None


# The engine only proposes AwaitingRetry for tasks with retries; the condition disables its own.
@task(cache_policy=NO_CACHE, persist_result=False, retries=1, retry_condition_fn=lambda *_: False)
@measured("attempt")
def attempt(call: _Call[Any, Any]) -> State[Any]:
    """Find the result of a stage, or run the stage; return the new state of the task run.

    Raises:
        Exception: a bug; Prefect writes its traceback into the log.
    """
    call.attempts += 1
    call.error = None
    name = call.stage.name
    get_run_logger().info("%s: started; an earlier result is re-used if it can be verified", name)
    try:
        result = call.result = _performed(call, stage_listener(name, call.title))
    except PrunedError as error:
        call.error = error
        return Completed(name="Pruned", message=str(error))
    except PodlineError as error:
        call.error = error
        retry = call.budgets.after(error)
        return _failed(call, error) if retry is None else _awaiting(call, error, retry)
    except TerminationSignal as signal:
        cancelled = stops.is_cancelled()
        if not cancelled and not environment.of_prefect_worker():
            raise
        call.error, message = signal, _CANCELLED if cancelled else _STOPPED
        return Cancelled(message=message)  # the engine logs the message
    return Completed(name="Cached", message="an earlier result, verified") if result.reused else Completed()


def _performed(call: _Call[Any, Any], listener: Listener) -> Any:
    machine = settings.load()
    if machine.launch and type(call.spec) is TrainSpec:  # no rehearsal, which is a subclass
        return run_as_job(call.spec, listener, machine, _goes_on_later)
    return perform(call.spec, listener, machine, attempt=call.attempts, placed=placed)


def _goes_on_later() -> bool:
    """Return whether a worker resumes the stopped run, which then finds its job again."""
    return environment.of_prefect_worker() and not stops.is_cancelled()


def _awaiting(call: _Call[Any, Any], error: PodlineError, retry: Retry) -> State[Any]:
    name, delay = call.stage.name, retry.delay * random.uniform(1 - _JITTER, 1 + _JITTER)
    cause = in_form_words(one_line(error)).removeprefix(f"{name}: ")
    message = f"trying again in {_seconds(delay)} ({retry.number} of {retry.most}): {cause}"
    tell_details(error, get_run_logger())
    get_run_logger().warning("%s: %s", name, message)
    Reporter(name, terminal()).warn(message)
    call.notes.retried(name, error, delay)
    return AwaitingRetry(scheduled_time=datetime.now(UTC) + timedelta(seconds=delay), message=message)


def _failed(call: _Call[Any, Any], error: PodlineError) -> State[Any]:
    tell_details(error, get_run_logger())
    message = message_of(error)
    return Failed(message=f"{message}; tried {call.attempts} times" if call.attempts > 1 else message, data=error)


def _seconds(delay: float) -> str:
    return f"{delay:.0f} s" if delay >= 1 else f"{delay:.1g} s"


convert = StageTask(CONVERT)
validate = StageTask(VALIDATE)
pace = StageTask(PACE)
train = StageTask(TRAIN)
evaluate = StageTask(EVALUATE)
promote = StageTask(PROMOTE)
report = StageTask(REPORT)
find_learning_rate = StageTask(LR_FIND)
