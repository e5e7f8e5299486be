"""One training at a time on a machine, over all deployments: a concurrency limit for each machine.

The limit is named after the host, is made by the first training there, and can be raised in Prefect's UI for a machine
that has room for several. A run that waits is shown as *Waiting*, and its log says for whom. The lease ends by itself
when its process does. Where the server is away the training goes on: two of them are slow, none of them is wrong.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Running

from podline.tasks.runs.planned_stop import keep_count
from podline.tasks.runs.slot import Slot, holder, is_away

LIMIT = f"podline-training-{socket.gethostname()}"
WAITING = "Waiting"
"""The name of the state of a flow run that waits for its turn."""
_LABEL = "podline.trains"
# Prefect's servers allow no less than 60.
_LEASE_SECONDS = 120.0
_RENEW_SECONDS = 20.0
_ASK_SECONDS = 5.0


@contextlib.contextmanager
def turn_to_train(say: Callable[[str], None]) -> Iterator[None]:
    """The body trains while no more others do on this machine than the limit allows; to be called in a task run.

    Args:
        say: gets a line for what is waited for.
    """
    with get_client(sync_client=True) as client:
        slot = Slot(client, LIMIT, holder(), _LEASE_SECONDS)
        try:
            _make_limit(client)
            _wait_for(slot, client, say)
        except httpx.HTTPError as error:
            say(f"whether others train on this machine is not known: the Prefect server does not answer ({error})")
        over = threading.Event()
        keeper = threading.Thread(target=_keep, args=(slot, over), name="machine-turn", daemon=True)
        keeper.start()
        try:
            with _known(client):
                yield
        finally:
            over.set()
            keeper.join()
            slot.give_back(say)


def _make_limit(client: SyncPrefectClient) -> None:
    """One that is there stays as it is: how many may train at once, a person decides."""
    try:
        client.read_global_concurrency_limit_by_name(LIMIT)
    except ObjectNotFound:
        client.upsert_global_concurrency_limit_by_name(LIMIT, 1)


def _wait_for(slot: Slot, client: SyncPrefectClient, say: Callable[[str], None]) -> None:
    told = ""
    while not slot.take():
        if slot.users == 0:  # somebody deleted it: then there is no limit
            return
        message = f"waits for its turn on {socket.gethostname()}: {_others(client)}"
        if message != told:
            _show(client, WAITING, message)
            say(message)
            told = message
        time.sleep(_ASK_SECONDS)
    if told:
        say("its turn has come")
        _show(client, "Running", "")


def _others(client: SyncPrefectClient) -> str:
    running = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
    runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(state=running))
    names = sorted(run.name for run in runs if run.labels.get(_LABEL) == LIMIT)
    return f"{', '.join(names)} trains there" if names else f"the limit {LIMIT} is taken"


def _show(client: SyncPrefectClient, name: str, message: str) -> None:
    # What is shown must not cost the stage its work.
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
        if flow_run.id:
            # It is no further start of the run: a crash after it is the first one.
            keep_count(client, UUID(flow_run.id))
            client.set_flow_run_state(UUID(flow_run.id), Running(name=name, message=message), force=True)


@contextlib.contextmanager
def _known(client: SyncPrefectClient) -> Iterator[None]:
    """While the body runs, others can tell that this flow run trains here."""
    _put(client, LIMIT)
    try:
        yield
    finally:
        _put(client, "")


def _put(client: SyncPrefectClient, value: str) -> None:
    with contextlib.suppress(httpx.HTTPError, ObjectNotFound):
        if flow_run.id:
            client.update_flow_run_labels(UUID(flow_run.id), {_LABEL: value})


def _keep(slot: Slot, over: threading.Event) -> None:
    # In this thread alone: a renewal that fails is tried again here, and must not keep the end of the use waiting.
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        while not over.wait(_RENEW_SECONDS):
            try:
                slot.keep()
            except httpx.HTTPError as error:
                if not is_away(error):
                    return
