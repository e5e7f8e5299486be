"""Closes task runs whose process was killed; otherwise Prefect would show them as Running forever.

Only its own process writes a task run's state. So the worker closes task runs, by a hook of the flow, when it sees the
process end. Each flow run also closes some at its start: those of an earlier start, and those of ended runs whose
worker no longer exists.
"""

from __future__ import annotations

from typing import Any

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.context import FlowRunContext
from prefect.states import Crashed

from podline.tasks.runs.names import TAG

MESSAGE = "Its process has ended; its saved work is kept."
_OPEN = [StateType.RUNNING, StateType.PENDING, StateType.SCHEDULED]
_OVER = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]


def close_what_is_left() -> None:
    """Close task runs at the start of a flow run, before its first task."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        _close(client, FlowRunFilter(id=FlowRunFilterId(any_=[context.flow_run.id])))
        over = FlowRunFilterState(type=FlowRunFilterStateType(any_=_OVER))
        _close(client, FlowRunFilter(state=over, tags=FlowRunFilterTags(all_=[TAG])))


def close_tasks(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 (a hook)
    """Close the task runs of a crashed flow run; a hook of flows."""
    with get_client(sync_client=True) as client:
        _close(client, FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id])))


def _close(client: SyncPrefectClient, runs: FlowRunFilter) -> None:
    is_open = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=_OPEN)))
    for task_run in client.read_task_runs(flow_run_filter=runs, task_run_filter=is_open):
        client.set_task_run_state(task_run.id, Crashed(message=MESSAGE), force=True)
