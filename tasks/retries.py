"""When a task is tried again: its error's class says after which delays, and against which budget it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from podline.errors import TransientError
from podline.progress import Reporter
from tasks.listening import terminal

# Those that all budgets together may ask for.
RETRIES = 9


def counted() -> Callable[[Task[..., Any], TaskRun, State[Any]], bool]:
    """A ``retry_condition_fn`` for one call of a task: failures and preemptions are counted apart.

    A plain function, since Prefect takes any other callable for a constant.
    """
    used: Counter[str] = Counter()

    def try_again(failed: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
        error = state.data
        if not isinstance(error, TransientError) or used[error.budget] >= len(error.retry_delays):
            return False
        delay = error.retry_delays[used[error.budget]]
        used[error.budget] += 1
        # Prefect reads the delay after it asked; the task is the copy that with_options made for this one call.
        failed.retry_delay_seconds = delay
        cause, times = str(error).splitlines()[0], f"{used[error.budget]} of {len(error.retry_delays)}"
        Reporter(failed.name, terminal()).warn(f"{cause}; trying again in about {delay:g} s ({times})")
        return True

    return try_again
