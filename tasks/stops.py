"""How a flow run ends: by a failure with one line, by a planned stop, or by the death of its process.

**Failures.** The library's errors name options of the command line, but the reader of a state's message has a form. So
``--root`` is replaced by the title of its field, by the table of options. Further lines of an error (the end of a log,
the stacks of threads) go to the run's log. The run's card has the message and the advice of docs/how-to/failed-run.md.

**Planned stops.** A run that gets SIGTERM saves a checkpoint and returns to the queue: at the end of ``podline up``, of
a service, or of the machine. The run's own process returns it to the queue if possible (:func:`interrupted`); otherwise
the worker does (:mod:`podline.deployments.worker`). The run is suspended and scheduled again, and the server does not
count resumed runs. So a run still restarts by itself after a real crash (:mod:`podline.deployments.automations`).

**Task runs whose process was killed** would stay Running forever, since only its own process writes a task run's state.
The worker closes them, by a hook of the flow, when it sees the process end. Each flow run also closes some at its
start: those of an earlier start, and those of ended runs whose worker no longer exists.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from posixpath import normpath
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun, ObjectNotFound, Pause, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Crashed, Failed, Scheduled, Suspended

from podline.base.errors import PodlineError, one_line
from podline.report.escaping import markdown
from podline.settings import environment
from podline.stages.options import (
    DataGroup,
    MachineGroup,
    RunOptions,
    SearchOptions,
    TrainingGroup,
    TrialOptions,
    flag_of,
)
from podline.tasks.server import OUR_TAGS, TAG
from podline.tasks.shown import say_first

P = ParamSpec("P")
R = TypeVar("R")

_RUN_LOG = logging.getLogger("prefect.flow_runs")
_PAGE = "docs/how-to/failed-run.md"
NAME = "AwaitingRetry"
MESSAGE = "Stopped as planned; its saved work is kept, and it continues when a worker runs."
# Seconds for the process of the run to end, before a running worker starts the run again.
_PAUSE = timedelta(seconds=20)
GONE = "Its process has ended; its saved work is kept."
_OPEN = [StateType.RUNNING, StateType.PENDING, StateType.SCHEDULED]
_OVER = [StateType.COMPLETED, StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]
# An option's title in forms.
_TITLES = {
    flag_of(name, field): str(field.title)
    for model in (RunOptions, TrainingGroup, DataGroup, MachineGroup, SearchOptions, TrialOptions)
    for name, field in model.model_fields.items()
}


def message_of(error: PodlineError) -> str:
    """Return the message of a state for a failure, in one line."""
    return f"{error.heading}: {in_form_words(one_line(error))}"


@functools.cache
def remedies() -> dict[str, str]:
    """Return heading of a failure → what to do, in Markdown, from the first table of docs/how-to/failed-run.md."""
    rows = re.findall(r"^\| (\*.+:\*) \| (.+) \|$", (files("podline") / _PAGE).read_text("utf-8"), re.MULTILINE)
    return {
        heading: re.sub(r"\[[^]]+\]\(([^)]+)\)", lambda link: f"`{normpath(f'{_PAGE}/../{link[1]}')}`", advice)
        for headings, advice in rows
        for heading in re.findall(r"\*([^*]+):\*", headings)
    }


def in_form_words(text: str) -> str:
    """Replace options in a message by the titles of a form's fields; commands stay unchanged."""
    return re.sub(r"`[^`]*`|--[a-z-]+", lambda flag: _TITLES.get(flag[0], flag[0]), text)


def tell_details(error: BaseException, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
    """Write the lines of an error after the first one to a log."""
    _, _, details = str(error).strip().partition("\n")
    if details:
        logger.warning(details)


def one_line_failures(body: Callable[P, R]) -> Callable[P, R | State[Any]]:
    """Wrap a flow's body so that it returns Podline's errors as failed states, with the cause and no traceback.

    A planned stop is no failure. Any other exception is a bug, which Prefect handles.
    """

    @functools.wraps(body)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R | State[Any]:
        try:
            return body(*args, **kwargs)
        except PodlineError as error:
            message = message_of(error)
            get_run_logger().error(message)
            advice = remedies().get(error.heading)
            text = f"**Failed.** {markdown(message)}" + (f"\n\n**What to do:** {advice}" if advice else "")
            say_first(_recipe(), text, f"Failed: {markdown(message)}")
            return Failed(message=message, data=error)
        except TerminationSignal:
            pause = interrupted()
            if pause is None:
                raise
            raise pause from None

    return answer


def _recipe() -> str:
    given = flow_run.parameters.get("parameters", {})
    recipe = given.get("recipe") if isinstance(given, Mapping) else getattr(given, "recipe", None)
    return str(recipe or flow_run.flow_name)


def _is_unexplained(record: logging.LogRecord) -> bool:
    """Return False for the engine's record that would repeat the state's message with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], PodlineError | CancelledRun))


_RUN_LOG.addFilter(_is_unexplained)


def is_cancelled() -> bool:
    """Return whether a person cancels the run, according to its server; False if the server does not answer."""
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(flow_run.id)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())
    return False


def interrupted() -> Pause | None:
    """Return a run to the queue after SIGTERM; return the exception that hides the stop from Prefect's crash detection.

    Returns:
        None if no worker started the run, it has ended, a person cancels it, or the server does not answer.
    """
    if not environment.of_prefect_worker():
        return None
    # The sender may send a second SIGTERM to the whole group.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = put_back(client, UUID(flow_run.id))
        if state is not None:
            get_run_logger().info(MESSAGE)
            return Pause(state=state)
    return None


def leave_by_worker(client: SyncPrefectClient, run_id: UUID) -> None:
    """Return a run whose process did not end in time to the queue, if it may begin again; else mark it as Crashed.

    Runs of Podline resume from their saved work, and runs that have not begun lose nothing. Other flows of the pool may
    not be safe to repeat.
    """
    run = client.read_flow_run(run_id)
    if set(OUR_TAGS).isdisjoint(run.tags) and run.state is not None and run.state.is_running():
        client.set_flow_run_state(run_id, Crashed(message="Its worker was stopped, and its process with it."))
    else:
        put_back(client, run_id)


def put_back(client: SyncPrefectClient, run_id: UUID) -> State | None:
    """Return a run in progress to the queue without counting a start.

    Returns:
        The new state; None if the run has ended, already waits, or is being cancelled.
    """
    state = client.read_flow_run(run_id).state
    if state is None or not (state.is_running() or state.is_pending()):
        return None
    if state.is_running():
        client.set_flow_run_state(run_id, Suspended(message=MESSAGE))
    again = Scheduled(name=NAME, message=MESSAGE, scheduled_time=datetime.now(UTC) + _PAUSE)
    return client.set_flow_run_state(run_id, again).state


def close_what_is_left() -> None:
    """Close task runs at the start of a flow run, before its first task."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        _close(client, {"id": {"any_": [context.flow_run.id]}})
        _close(client, {"state": {"type": {"any_": _OVER}}, "tags": {"all_": [TAG]}})


def close_tasks(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 (a hook)
    """Close the task runs of a crashed flow run; a hook of flows."""
    with get_client(sync_client=True) as client:
        _close(client, {"id": {"any_": [flow_run.id]}})


def _close(client: SyncPrefectClient, flow_runs: dict[str, Any]) -> None:
    runs = FlowRunFilter.model_validate(flow_runs)
    is_open = TaskRunFilter.model_validate({"state": {"type": {"any_": _OPEN}}})
    for task_run in client.read_task_runs(flow_run_filter=runs, task_run_filter=is_open):
        client.set_task_run_state(task_run.id, Crashed(message=GONE), force=True)
