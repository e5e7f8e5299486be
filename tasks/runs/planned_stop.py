"""A planned stop of a flow run: it saves a checkpoint and returns to the queue, and no crash is counted.

A SIGTERM to a run means that it goes on later: the end of ``podline up``, a service manager, a machine that shuts down.
The run's own process puts it back where it can (:func:`interrupted`), and the worker does for those that could not
(:mod:`podline.deployments.worker`). Its count of starts stays what it was, as that of a run which was paused, so it
still begins again by itself after a real crash; see :mod:`podline.deployments.automations`.
"""

from __future__ import annotations

import contextlib
import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
from prefect._internal.control_listener import get_intent
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound, Pause
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Scheduled

from podline import settings

NAME = "AwaitingRetry"
MESSAGE = "Stopped as planned; what it had saved is kept, and it goes on by itself when a worker is there."
# The process of the run has a moment to end, before a worker that is there takes the run up again.
_PAUSE = timedelta(seconds=20)


def is_one() -> bool:
    """Return whether SIGTERM means a planned stop: a worker started this process, and nobody cancels the run."""
    return settings.of_prefect_worker() and get_intent() is None


def is_cancelled() -> bool:
    """Return whether SIGTERM means that somebody cancels the run."""
    return get_intent() == "cancel"


def interrupted() -> Pause | None:
    """To be called where a flow's body was ended by SIGTERM: puts the run back, and tells how the flow is to end.

    Returns:
        What to raise, for Prefect's engine to end without a crash; None where nobody would take the run up again (no
        worker started it), where a person cancels it, or where the server does not answer.
    """
    if not is_one():
        return None
    # Who asked once may ask the whole group as well.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound), get_client(sync_client=True) as client:
        state = put_back(client, UUID(flow_run.id))
        if state is not None:
            get_run_logger().info(MESSAGE)
            return Pause(state=state)
    return None


def put_back(client: SyncPrefectClient, run_id: UUID) -> State | None:
    """Puts a run that is under way back into the queue, without counting a start.

    Returns:
        Its state; None if it has come to an end, or waits already.
    """
    run = client.read_flow_run(run_id)
    if run.state is None or not (run.state.is_running() or run.state.is_pending()):
        return None
    keep_count(client, run_id)
    state = Scheduled(name=NAME, message=MESSAGE, scheduled_time=datetime.now(UTC) + _PAUSE)
    return client.set_flow_run_state(run_id, state).state


def keep_count(client: SyncPrefectClient, run_id: UUID) -> None:
    """Has the server not count the next time that a run becomes Running; one that has not begun yet is counted."""
    run = client.read_flow_run(run_id)
    if run.run_count:
        policy = run.empirical_policy.model_copy(update={"resuming": True})
        client.update_flow_run(run_id, empirical_policy=policy)
