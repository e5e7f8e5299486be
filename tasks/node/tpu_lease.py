"""The lease on the TPU among all flow runs of a Prefect server: a slot of the limit ``tpu``.

The lease is renewed as long as this process lives, and so ends by itself when it does not. That is what Prefect's own
``concurrency`` does; but it stops renewing for good after three failures, fails a task whose work is done if the server
is away when the slot is given back, and waits without a word. Here a server may be away: the renewals go on until it is
back. A slot that was lost meanwhile is taken again, and if another run has it by then, this one leaves.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import ConcurrencyLeaseHolder, StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from podline.errors import OrphanedError, PodlineError, TpuInUseError, TpuSetupError
from podline.settings import of_prefect_worker
from podline.supervision.supervisor import Ending
from podline.tasks.node.slot import Slot, holder, is_away
from podline.tasks.node.tpu_holder import holders, known_as_holder
from podline.tasks.runs.asking import explained
from podline.tpu.clock import Clock, in_words
from podline.tpu.tpu_log import TURN, Event, TpuLog

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

LIMIT = "tpu"
LEASE_SECONDS = 120.0
"""The TPU is free so long after its user's process has died, at the latest. Prefect's servers allow no less than 60."""
_RENEWALS = 6  # in the time of a lease
_ASK_SECONDS = 5.0
_WATCH_SECONDS = 0.5
# The worker, in a process that a worker started; whoever loses its parent gets another one.
_PARENT = os.getppid()
_OUR_TURN = f"{TURN}: another flow run has the TPU"
_LOST = "the Prefect server was away for longer than the lease, and another flow run has the TPU now"
_NO_SERVER = f"{TURN}: the Prefect server does not answer"


@contextlib.contextmanager
def lease(tpu_log: TpuLog, ending: Ending, clock: Clock, patience: float) -> Iterator[None]:
    """The body is the only user of the limit ``tpu``; to be called in a task run.

    Args:
        tpu_log: is told what was waited for, and how long.
        ending: is asked for when another run got the TPU while the server was away, and when this process is orphaned.
        clock: the log's.
        patience: seconds to wait for the turn.

    Raises:
        TpuSetupError: the server has no such limit, or one for several users at a time.
        TpuInUseError: the turn did not come.
        OrphanedError: the worker went while this waited.
    """
    with get_client(sync_client=True) as client:
        slot = _Slot(client, holder())
        _warn_of_memory(client, tpu_log.say)
        try:
            _wait_for(slot, tpu_log, clock, patience)
        except PodlineError as error:
            tpu_log.tell(clock.now(), Event.GIVE_UP, str(error))
            raise
        over = threading.Event()
        keeper = threading.Thread(target=_keep, args=(slot, tpu_log.say, ending, over), name="tpu-lease", daemon=True)
        keeper.start()
        try:
            with known_as_holder():
                yield
        finally:
            over.set()
            keeper.join()
            slot.give_back(tpu_log.say)


def make_limit() -> None:
    """Has the server know the limit."""
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(LIMIT, 1)


def whose_turn() -> str:
    """Who has the lease, in words; for people."""
    running = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
    try:
        with explained(), get_client(sync_client=True) as client:
            limit = client.read_global_concurrency_limit_by_name(LIMIT)
            having = holders(client.read_flow_runs(flow_run_filter=FlowRunFilter(state=running)))
    except ObjectNotFound:
        return f"the Prefect server has no concurrency limit {LIMIT!r}"
    except PodlineError as error:
        return f"not known: {error}"
    if not limit.active_slots:
        return "free"
    return f"flow run {having[0].name}" if having else "taken, and no flow run that lives has it"


class _Slot(Slot):
    """The slot of the limit ``tpu``, which has one user."""

    def __init__(self, client: SyncPrefectClient, holder: ConcurrencyLeaseHolder | None) -> None:
        super().__init__(client, LIMIT, holder, LEASE_SECONDS)

    def take(self) -> bool:
        """Takes it, if it is free.

        Raises:
            TpuSetupError: there is none, or more than one.
            httpx.HTTPError: the server does not answer, or refuses.
        """
        taken = super().take()
        if self.users == 0:
            raise TpuSetupError(
                f"the Prefect server has no concurrency limit {LIMIT!r}; make it: "
                f"prefect global-concurrency-limit create {LIMIT} --limit 1"
            )
        if taken and self.users != 1:
            self.give_back(lambda _line: None)
            raise TpuSetupError(
                f"the concurrency limit {LIMIT!r} lets {self.users} runs use the TPU at a time, and a TPU has one "
                f"user: prefect global-concurrency-limit update {LIMIT} --limit 1"
            )
        return taken


def _wait_for(slot: _Slot, tpu_log: TpuLog, clock: Clock, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            if slot.take():
                return
            why = _OUR_TURN
        except httpx.HTTPError as error:
            if not is_away(error):
                raise
            why = _NO_SERVER
        if _is_orphan():
            raise _orphaned()
        if time.monotonic() >= deadline:
            raise TpuInUseError(f"{why}, for {in_words(patience)} now")
        tpu_log.waited(clock.now(), why, _ASK_SECONDS)
        time.sleep(_ASK_SECONDS)


def _keep(slot: _Slot, say: Callable[[str], None], ending: Ending, over: threading.Event) -> None:
    """Keeps the slot, and looks after the parent, until it is over."""
    next_renewal = 0.0
    # In this thread alone: a renewal that fails is tried again here, and must not keep the end of the use waiting.
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        while not over.wait(_WATCH_SECONDS):
            if _is_orphan():
                ending.ask(_orphaned(), at_once=False)
                return
            if time.monotonic() < next_renewal:
                continue
            next_renewal = time.monotonic() + LEASE_SECONDS / _RENEWALS
            try:
                if not slot.keep():
                    ending.ask(TpuInUseError(_LOST), at_once=False)
                    return
            except (httpx.HTTPError, TpuSetupError) as error:
                next_renewal = time.monotonic() + _ASK_SECONDS
                say(f"the lease on the TPU is not renewed, which is tried again in {_ASK_SECONDS:g} s: {error}")


def _is_orphan() -> bool:
    """Whether the worker that started this process is gone; nothing is printed from then on."""
    gone = of_prefect_worker() and os.getppid() != _PARENT
    if gone:
        _say_no_more()
    return gone


def _orphaned() -> OrphanedError:
    return OrphanedError(
        f"the Prefect worker that started this run (process {_PARENT}) is gone, so nobody could cancel it any more; "
        "what it had is saved, and a retry goes on from there"
    )


def _say_no_more() -> None:
    """Nobody reads what this process prints any more, and Prefect's console ends a process that prints to nobody."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nobody, stream)
    os.close(nobody)


def _warn_of_memory(client: SyncPrefectClient, say: Callable[[str], None]) -> None:
    """A server that forgets its leases when it ends never takes back what was on them (PrefectHQ/prefect#20090)."""
    with contextlib.suppress(httpx.HTTPError):
        storage = client.request("GET", "/admin/settings").json()["server"]["concurrency"]["lease_storage"]
        if storage.endswith(".memory"):
            say(
                "this Prefect server keeps leases in memory: if it is restarted while a run has the TPU, the limit "
                "stays taken; start it with PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE="
                "prefect.server.concurrency.lease_storage.filesystem"
            )
