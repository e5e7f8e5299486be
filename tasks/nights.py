"""The rules of nights: which of several due nights runs, when a schedule is paused, and how runs are named.

The deployment's own concurrency limit, in ``prefect.yaml``, allows one night at a time: a night that is due during
another waits for it. This module adds further rules, for runs that a schedule or an automation made. Runs that a person
starts are always executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import flow_run
from pydantic import BaseModel

from podline.base.errors import SettingsError
from podline.documents.ledger_entry import Started
from podline.settings import machine as settings
from podline.tasks.forms import read_form
from podline.tasks.server import starts, states_of

F = TypeVar("F", bound=BaseModel)

PAUSED = "podline.schedule.paused"
"""The event of a paused schedule; its payload has a message."""
_PAGE = 50


class FlowAttempt(NamedTuple):
    """The origin of a run and the number of its attempt; see :class:`podline.documents.ledger_entry.Entry`."""

    started: Started
    schedule: str
    attempt: int


def what_began() -> FlowAttempt:
    """Return what began this attempt of the flow run.

    A restart after a crash is the same night; a retry is a new attempt of a run that had ended.
    """
    if not flow_run.id:
        return FlowAttempt("hand", "", 1)
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run.id))
        schedule = client.read_deployment(run.deployment_id).name if is_night(run) and run.deployment_id else ""
        states = states_of(client, run.id)
    attempt = starts(states)
    ends = [state.type for state in states if state.is_final()]
    if ends and ends[-1] != StateType.CRASHED:
        return FlowAttempt("retry", schedule, attempt)
    started = "schedule" if run.auto_scheduled else "event" if is_night(run) else "hand"
    return FlowAttempt(started, schedule, attempt)


def later_night() -> FlowRun | None:
    """Return the latest due night that replaces this run; None without one, or if this run is not a night or restarts.

    A night uses the data at its start. So among several nights that were missed or had to wait, the latest replaces the
    others, even after it has started or ended. A night that has started once, and is started again, is always executed.
    """
    if not flow_run.id:
        return None
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(flow_run.id))
        if not is_night(run) or run.expected_start_time is None or starts(states_of(client, run.id)) > 1:
            return None
        due = {"after_": run.expected_start_time, "before_": datetime.now(UTC)}
        nights = _nights(client, run, set(StateType) - {StateType.CANCELLED, StateType.CANCELLING}, due)
        return next((night for night in nights if _due(night) > run.expected_start_time), None)


def pause_if_hopeless(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 (a hook)
    """Pause the schedules of a deployment after a series of failed nights; a hook of flows.

    Nights that ended before a schedule was switched on, or changed, do not count. The setting ``nights.pause_after`` is
    the number of failures. The hook writes to the run's log, and emits the event :data:`PAUSED`, which triggers
    notifications.
    """
    most = settings.load().nights.pause_after
    if not most or not flow_run.auto_scheduled or flow_run.deployment_id is None:
        return
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(flow_run.id)
        # A run that crashed at its first start is restarted, see podline.deployments.automations.
        if run.state_type == StateType.CRASHED and run.run_count == 1:
            return
        deployment = client.read_deployment(flow_run.deployment_id)
        changed = [schedule.updated for schedule in deployment.schedules if schedule.updated]
        ended = {StateType.COMPLETED, StateType.FAILED, StateType.CRASHED}
        last = list(islice(_nights(client, flow_run, ended), most))
        if not changed or len(last) < most or not all(_failed_since(max(changed), night) for night in last):
            return
        for schedule in deployment.schedules:
            client.update_deployment_schedule(deployment.id, schedule.id, active=False)
    message = (
        f"{deployment.name}: {most} nights in a row failed, the last at {_due(last[0]):%Y-%m-%d %H:%M %Z}; its "
        "schedule is paused. When the cause is corrected, switch it on again: Deployments, the deployment, Schedules"
    )
    flow_run_logger(flow_run).error(message)
    emit_event(
        PAUSED,
        resource={
            "prefect.resource.id": f"prefect.deployment.{deployment.id}",
            "prefect.resource.name": deployment.name,
        },
        related=[
            {
                "prefect.resource.id": f"prefect.flow-run.{flow_run.id}",
                "prefect.resource.name": flow_run.name,
                "prefect.resource.role": "flow-run",
            }
        ],
        payload={"message": message},
    )


def _failed_since(time: datetime, night: FlowRun) -> bool:
    return night.state_type != StateType.COMPLETED and night.end_time is not None and night.end_time > time


def _nights(
    client: SyncPrefectClient,
    run: FlowRun,
    states: set[StateType],
    due: dict[str, datetime] | None = None,
) -> Iterator[FlowRun]:
    """Yield runs of the same deployment that no person started, latest due time first."""
    wanted = FlowRunFilter.model_validate(
        {
            "deployment_id": {"any_": [run.deployment_id] if run.deployment_id else []},
            "expected_start_time": due,
            "state": {"type": {"any_": sorted(states)}},
        }
    )
    for offset in count(0, _PAGE):
        page = client.read_flow_runs(
            flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=_PAGE, offset=offset
        )
        # The server cannot filter runs that a person started.
        yield from (night for night in page if is_night(night))
        if len(page) < _PAGE:
            return


def is_night(run: FlowRun) -> bool:
    """Return whether a schedule or an automation made a run."""
    return run.auto_scheduled or (run.created_by is not None and run.created_by.type == "AUTOMATION")


def _due(night: FlowRun) -> datetime:
    assert night.expected_start_time is not None  # noqa: S101 (every run that was scheduled has one)
    return night.expected_start_time


def run_name(form: type[F], describe: Callable[[F], str]) -> Callable[[], str]:
    """Return a ``flow_run_name``: the subject and the due time.

    A manual run of a deployment keeps its own name after the subject, since a person may have chosen this name.

    Args:
        form: the flow's form.
        describe: returns the subject of the run.
    """

    def name() -> str:
        context = FlowRunContext.get()
        run = context.flow_run if context else None
        due = flow_run.scheduled_start_time or datetime.now(UTC)
        try:
            subject = describe(read_form(form, flow_run.parameters.get("parameters", {})))
        except SettingsError:
            return str(flow_run.name)  # the run itself will report the error
        if run and run.deployment_id and not is_night(run):
            # A retry has the subject already.
            return run.name if subject in run.name else f"{subject}: {run.name}"
        return f"{subject} {due:%Y-%m-%d %H:%M:%S}"

    return name
