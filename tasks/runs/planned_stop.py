"""A planned stop of a flow run: the run saves a checkpoint and returns to the queue, without counting as a crash.

A run that gets SIGTERM continues later: at the end of ``podline up``, of a service, or of the machine. The run's own
process returns it to the queue if possible (:func:`interrupted`); otherwise the worker does
(:mod:`podline.deployments.worker`). The run is suspended and scheduled again, and the server does not count resumed
runs. So a run still restarts by itself after a real crash (:mod:`podline.deployments.automations`).
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
MESSAGE = "Stopped as planned; its saved work is kept, and it continues when a worker runs."
# Seconds for the process of the run to end, before a running worker starts the run again.
_PAUSE = timedelta(seconds=20)


def is_one() -> bool:
    """Return whether a SIGTERM without a cancellation is a planned stop: whether a worker started this process."""
    return settings.of_prefect_worker()


def is_cancelled() -> bool:
    """Return whether a person cancels the run, according to its server; False if the server does not answer."""
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(flow_run.id)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())
    return False


def interrupted() -> Pause | None:
    """Return a run to the queue after SIGTERM; return the exception that hides the stop from Prefect's crash detection.

    Returns:
        None if no worker started the run, a person cancels it, or the server does not answer.
    """
    if not is_one():
        return None
    # The sender may send a second SIGTERM to the whole group.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = put_back(client, UUID(flow_run.id))
        if state is not None:
            get_run_logger().info(MESSAGE)
            return Pause(state=state)
    return None


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
