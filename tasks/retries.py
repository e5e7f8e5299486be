"""Retries of a stage's task: the error's class gives the delays and the budget.

Prefect counts one number of retries for all causes, tells of each with a traceback's worth of text, and gives the state
that waits no message. So a task run is driven here by Prefect's engine with three of its steps taken over: what is
done about an exception, what is said of it, and how a task ends whose run is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect import Task
from prefect._internal.control_listener import get_intent
from prefect._internal.states import exception_to_failed_state_sync
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.results import get_result_store, should_persist_result
from prefect.states import AwaitingRetry, Cancelled
from prefect.task_engine import SyncTaskRunEngine
from prefect.utilities.math import clamped_poisson_interval

from podline.errors import PodlineError, one_line
from podline.progress import Reporter
from podline.stages.budgets import Budgets
from podline.tasks.failures import in_form_words, message_of, tell_details
from podline.tasks.runs import planned_stop
from podline.tasks.runs.listening import terminal

_JITTER = 0.3
_CANCELLED = "cancelled with its run; what it had saved is kept, and Retry goes on from there"
_STOPPED = "stopped with its run, as planned; what it had saved is kept, and the run goes on from there"

RetryListener = Callable[[str, BaseException, float], None]
"""Told of a stage that failed and is tried again: its name, why it failed, after how many seconds."""


def ignore_retry(_stage: str, _error: BaseException, _delay: float) -> None:
    """Does nothing: the log of the run says it already."""


def run(task: Task[..., Any], parameters: dict[str, Any], on_retry: RetryListener = ignore_retry) -> Any:
    """A task's result; failures and preemptions are counted apart.

    Args:
        task: is called in the flow that runs.
        parameters: its arguments.
        on_retry: told of every time that the task is tried again.

    Raises:
        Exception: what the task raised the last time.
    """
    engine = _Engine(task=task, parameters=parameters, on_retry=on_retry)
    # As prefect.task_engine.run_task_sync has it.
    with engine.start():
        while engine.is_running():
            engine.wait_until_ready()
            with engine.run_context(), engine.transaction_context() as transaction:
                engine.call_task_fn(transaction)
    return engine.result()


@dataclass
class _Engine(SyncTaskRunEngine[Any, Any]):
    """Prefect's engine, but for how often a task is tried again and what is said of it."""

    on_retry: RetryListener = ignore_retry
    budgets: Budgets = field(default_factory=Budgets)

    def handle_retry(self, exc_or_state: Exception | State[Any]) -> bool:
        """Whether the task is tried again; then its state and its log say why, when and how often."""
        retry = self.budgets.after(exc_or_state)
        if retry is None or not isinstance(exc_or_state, PodlineError):
            return False
        name, error = self.task.name, exc_or_state
        delay = clamped_poisson_interval(retry.delay, clamping_factor=_JITTER)
        cause = in_form_words(one_line(error)).removeprefix(f"{name}: ")
        message = f"trying again in {_seconds(delay)} ({retry.number} of {retry.most}): {cause}"
        tell_details(error, self.logger)
        self.logger.warning("%s: %s", name, message)
        Reporter(name, terminal()).warn(message)
        self.on_retry(name, error, delay)
        due = datetime.now(UTC) + timedelta(seconds=delay)
        self.set_state(AwaitingRetry(scheduled_time=due, message=message), force=True)
        self.retries += 1
        return True

    def handle_exception(self, exc: Exception) -> None:
        """Tries again, or fails: in one line where Podline explains it, with a traceback in the log if it is a bug."""
        self._telemetry.record_exception(exc)
        if self.handle_retry(exc):
            return
        failed = exception_to_failed_state_sync(
            exc, result_store=get_result_store(), write_result=should_persist_result()
        )
        if isinstance(exc, PodlineError):
            tell_details(exc, self.logger)
            failed.message = message_of(exc)
            if self.retries:
                failed.message += f"; tried {self.retries + 1} times"
        else:
            self.logger.error("Task run failed: %r", exc, exc_info=True)
        self.set_state(failed)
        self._raised = exc
        self._telemetry.end_span_on_failure(failed.message)

    def handle_crash(self, exc: BaseException) -> None:
        """A run that a person cancels, or that is stopped as planned, has no task that crashed."""
        cancelled = get_intent() == "cancel"
        if not isinstance(exc, TerminationSignal) or not (cancelled or planned_stop.is_one()):
            super().handle_crash(exc)
            return
        message = _CANCELLED if cancelled else _STOPPED
        self.logger.info("%s: %s", self.task.name, message)
        self.set_state(Cancelled(message=message), force=True)
        self._raised = exc
        self._telemetry.end_span_on_failure(message)


def _seconds(delay: float) -> str:
    return f"{delay:.0f} s" if delay >= 1 else f"{delay:.1g} s"
