"""A planned stop of a flow run: it saves a checkpoint and returns to the queue, and no crash is counted.

A SIGTERM to a run means that it goes on later: the end of ``podline up``, a service manager, a machine that shuts down.
The run's own process puts it back where it can (:func:`interrupted`), and the worker does for those that could not
(:mod:`podline.deployments.worker`). It is suspended and scheduled again, and the server does not count what resumes: a
run still begins again by itself after a real crash (:mod:`podline.deployments.automations`).
"""

from __future__ import annotations

import contextlib
import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound, Pause
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Scheduled, Suspended

from podline import settings

NAME = "AwaitingRetry"
MESSAGE = "Stopped as planned; what it had saved is kept, and it goes on by itself when a worker is there."
# The process of the run has a moment to end, before a worker that is there takes the run up again.
_PAUSE = timedelta(seconds=20)


def is_one() -> bool:
    """Return whether a SIGTERM that cancels nothing is a planned stop: a worker started this process."""
    return settings.of_prefect_worker()


def is_cancelled() -> bool:
    """Return whether a person cancels the run, as its server says; False if that does not answer."""
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(flow_run.id)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())
    return False


def interrupted() -> Pause | None:
    """Put the run back whose body was ended by SIGTERM, and return what to raise so that Prefect sees no crash.

    Returns:
        None if no worker started the run, a person cancels it, or the server does not answer.
    """
    if not is_one():
        return None
    # Whoever asked once may ask the whole group as well.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = put_back(client, UUID(flow_run.id))
        if state is not None:
            get_run_logger().info(MESSAGE)
            return Pause(state=state)
    return None


def put_back(client: SyncPrefectClient, run_id: UUID) -> State | None:
    """Put a run that is under way back into the queue, without counting a start.

    Returns:
        Its state; None if it has ended, waits already, or is being cancelled.
    """
    state = client.read_flow_run(run_id).state
    if state is None or not (state.is_running() or state.is_pending()):
        return None
    if state.is_running():
        client.set_flow_run_state(run_id, Suspended(message=MESSAGE))
    again = Scheduled(name=NAME, message=MESSAGE, scheduled_time=datetime.now(UTC) + _PAUSE)
    return client.set_flow_run_state(run_id, again).state
