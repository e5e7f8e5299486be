"""Failures and preemptions are counted apart, each with its own delays."""

from __future__ import annotations

from typing import Any

from prefect import Task
from prefect.states import Failed

from podline.errors import HangError, PodlineError, SourceError, TpuGoneError, TpuUnhealthyError, UnexplainedError
from tasks.retries import counted


def _nothing() -> None:
    pass


def delays(*failures: PodlineError) -> list[Any]:
    """The delay before each retry; None where there is none."""
    again, task = counted(), Task(_nothing)

    def delay(failure: PodlineError) -> Any:
        return task.retry_delay_seconds if again(task, None, Failed(data=failure)) else None  # type: ignore[arg-type]

    return [delay(failure) for failure in failures]


def test_a_preemption_costs_no_failure_and_a_failure_no_preemption() -> None:
    gone, ill, hung = TpuGoneError("gone"), TpuUnhealthyError("ill"), HangError("hung")
    assert delays(gone, ill, gone, hung, gone, ill, ill) == [30, 300, 60, 300, 120, 1800, None]
    assert delays(*[gone] * 6) == [30, 60, 120, 300, 600, None]


def test_the_unknown_is_tried_once_more_and_the_permanent_never() -> None:
    assert delays(TpuUnhealthyError("ill"), UnexplainedError("?"), UnexplainedError("?")) == [300, 60, None]
    assert delays(SourceError("bad")) == [None]
