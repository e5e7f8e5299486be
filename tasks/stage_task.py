"""A stage as a Prefect task: an earlier result is used again, else a child process does the work, with retries.

Whether a stage is done is asked of the store each time. So a task run shows as Cached exactly when its artifacts are
there and whole; a damaged one makes its stage run again, and through the checksums in their specs those that follow.

Prefect counts one number of retries for all causes. Here, the error's class gives delays and budget, so the task itself
returns the state AwaitingRetry, which Prefect's engine waits for, and its message says why, when and how often.
"""

from __future__ import annotations

import contextlib
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

from podline import settings
from podline.errors import PodlineError, one_line
from podline.progress import Reporter
from podline.stages.budgets import Budgets, Retry
from podline.stages.specs import Result, Spec
from podline.stages.table import Stage
from podline.supervision.running import perform, tpu_of
from podline.tasks.failures import in_form_words, message_of, tell_details
from podline.tasks.node import tpu_use
from podline.tasks.node.node_run import run_on_node
from podline.tasks.runs import planned_stop
from podline.tasks.runs.listening import terminal
from podline.tasks.runs.progress_cards import show
from podline.tasks.runs.run_log import stage_listener

S = TypeVar("S", bound=Spec)
R = TypeVar("R", bound=Result)

_JITTER = 0.3
_CANCELLED = "cancelled with its run; what it had saved is kept, and Retry goes on from there"
_STOPPED = "stopped with its run, as planned; what it had saved is kept, and the run goes on from there"


class StageNotes(Protocol):
    """Is told of every stage of a run."""

    def asked(self, spec: Spec) -> None:
        """A stage begins."""

    def retried(self, stage: str, error: BaseException, delay: float) -> None:
        """A stage failed, and is tried again after so many seconds."""

    def answered(self, spec: Spec, result: Result, seconds: float) -> None:
        """A stage came to its end; ``seconds`` is what it took this time."""


class _NoNotes(StageNotes):
    """For a flow of a single stage."""


@dataclass(frozen=True)
class StageTask(Generic[S, R]):
    """Calls a stage as a task of the flow that is running.

    Attributes:
        stage: the stage.
        description: what Prefect's UI says of the task.
        about: what tells its task runs from others of the same stage in a flow run.
    """

    stage: Stage[S, R]
    description: str
    about: str = ""

    @property
    def title(self) -> str:
        """The name of its task runs."""
        return f"{self.stage.name}, {self.about}" if self.about else self.stage.name

    def __call__(self, spec: S, notes: StageNotes | None = None) -> R:
        """Return the stage's result.

        Args:
            spec: what the stage is given.
            notes: of the run.

        Raises:
            PodlineError: what the stage raised, the last time that it was tried.
        """
        call, started = _Call(self.stage, spec, self.title, notes or _NoNotes()), time.monotonic()
        call.notes.asked(spec)
        named = attempt.with_options(name=self.stage.name, task_run_name=self.title, description=self.description)
        state: State[Any] = named(call, return_state=True)
        if call.result is None:
            raise call.error or state.result(raise_on_failure=False)
        call.notes.answered(spec, call.result, time.monotonic() - started)
        return call.result


@dataclass
class _Call(Generic[S, R]):
    """One call of a stage, over all its attempts.

    Attributes:
        result: what it came to; None until then.
        error: why the last attempt did not come to a result, where that can be said.
    """

    stage: Stage[S, R]
    spec: S
    title: str
    notes: StageNotes
    budgets: Budgets = field(default_factory=Budgets)
    attempts: int = 0
    result: R | None = None
    error: BaseException | None = None


# Prefect's own retries are switched on, since it tells of no AwaitingRetry else, and never used.
@task(cache_policy=NO_CACHE, persist_result=False, retries=1, retry_condition_fn=lambda *_: False)
def attempt(call: _Call[Any, Any]) -> State[Any]:
    """Find what a stage came to, or do it; return the state that the task run has then.

    Raises:
        Exception: a bug; Prefect writes its traceback into the log.
    """
    call.attempts += 1
    try:
        if call.attempts == 1 and _find(call):
            return Completed(name="Cached", message="found done, and verified")
        call.result = _done(call)
    except PodlineError as error:
        call.error = error
        retry = call.budgets.after(error)
        return _failed(call, error) if retry is None else _awaiting(call, error, retry)
    except TerminationSignal as signal:
        cancelled = planned_stop.is_cancelled()
        if not cancelled and not planned_stop.is_one():
            raise
        call.error, message = signal, _CANCELLED if cancelled else _STOPPED
        get_run_logger().info("%s: %s", call.stage.name, message)
        return Cancelled(message=message)
    return Completed()


def _find(call: _Call[Any, Any]) -> bool:
    """Find an earlier result that is still whole, and tell of it."""
    name, listener = call.stage.name, terminal()
    listener({"event": "start", "stage": name})
    call.result = call.stage.find(call.spec, Reporter(name, listener))
    if call.result is None:
        return False
    # A server that is away must not cost the run what it found.
    with contextlib.suppress(Exception):
        show(call.title, 100.0, f"{name}: found done, and verified")
    listener({"event": "result", "stage": name, "result": call.result.model_dump(mode="json")})
    return True


def _done(call: _Call[Any, Any]) -> Any:
    """Do the work in a child process; on a TPU behind the gate."""
    name, spec = call.stage.name, call.spec
    machine, listener = settings.load(), stage_listener(name, call.title)
    # The first that a person sees of it: the stage's own process may take a while to say something.
    get_run_logger().info("%s: begins, in a process of its own", name)
    tpu = tpu_of(spec, machine)
    if tpu is None:
        return perform(spec, listener, machine)
    clock, turn = tpu_use.CLOCK, tpu_use.turn(tpu)
    try:
        return perform(spec, listener, machine, attempt=call.attempts, clock=clock, on_node=run_on_node, turn=turn)
    finally:
        tpu_use.publish_tpu_log(spec)


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
