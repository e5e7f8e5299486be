"""When a task is tried again: its error's class says after which delays, and against which budget it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from podline.budgets import Budgets
from podline.progress import Reporter
from tasks.listening import terminal

# Those that all budgets together may ask for.
RETRIES = 9


Heard = Callable[[str, BaseException, float], None]
"""Told of a stage that failed and is tried again: its name, why it failed, after how many seconds."""


def nobody(_stage: str, _error: BaseException, _delay: float) -> None:
    """For whom it is enough that the log says so."""


def counted(heard: Heard = nobody) -> Callable[[Task[..., Any], TaskRun, State[Any]], bool]:
    """A ``retry_condition_fn`` for one call of a task: failures and preemptions are counted apart.

    A plain function, since Prefect takes any other callable for a constant.

    Args:
        heard: told of every time that the task is tried again.
    """
    budgets = Budgets()

    def try_again(failed: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
        retry = budgets.after(state.data)
        if retry is None:
            return False
        # Prefect reads the delay after it asked; the task is the copy that with_options made for this one call.
        failed.retry_delay_seconds = retry.delay
        error: Any = state.data
        heard(failed.name, error, retry.delay)
        cause, times = str(state.data).splitlines()[0], f"{retry.number} of {retry.most}"
        Reporter(failed.name, terminal()).warn(f"{cause}; trying again in about {retry.delay:g} s ({times})")
        return True

    return try_again
