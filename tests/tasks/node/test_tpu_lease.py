"""The limit that lets one flow at a time use the TPU, on a real server."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from turned_clock import TurnedClock

from podline.errors import TpuInUseError, TpuSetupError
from podline.supervision.supervisor import Ending
from podline.tasks.node import tpu_lease
from podline.tpu.tpu_log import TpuLog

pytestmark = pytest.mark.usefixtures("prefect_server", "quick")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_lease, "_RENEWALS", 600)
    monkeypatch.setattr(tpu_lease, "_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(tpu_lease, "_ASK_SECONDS", 0.1)


@contextlib.contextmanager
def held(tpu_log: TpuLog | None = None, ending: Ending | None = None, patience: float = 240.0) -> Iterator[None]:
    with tpu_lease.lease(tpu_log or TpuLog(), ending or Ending(), TurnedClock(), patience):
        yield


def of_the_limit(name: str) -> Any:
    with get_client(sync_client=True) as client:
        return getattr(client.read_global_concurrency_limit_by_name(tpu_lease.LIMIT), name)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_its_limit_it_is_refused_with_the_command_that_makes_it() -> None:
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectNotFound):
        client.delete_global_concurrency_limit_by_name(tpu_lease.LIMIT)
    tpu_log = TpuLog()
    with pytest.raises(TpuSetupError, match="prefect global-concurrency-limit create tpu --limit 1"), held(tpu_log):
        pass
    assert [entry.event for entry in tpu_log.entries] == ["give up"]
    assert tpu_lease.whose_turn() == "the Prefect server has no concurrency limit 'tpu'"
    tpu_lease.make_limit()
    with held():
        assert of_the_limit("active_slots") == 1
        assert tpu_lease.whose_turn() == "taken, and no flow run that lives has it"
    assert of_the_limit("active_slots") == 0
    assert tpu_lease.whose_turn() == "free"


def test_the_flow_run_that_has_it_is_named() -> None:
    tpu_lease.make_limit()

    @flow(name="training", flow_run_name="the night of the 5th")
    def training() -> str:
        with held():
            return tpu_lease.whose_turn()

    assert training() == "flow run the night of the 5th"


def test_a_limit_for_several_users_is_refused() -> None:
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(tpu_lease.LIMIT, 2)
    try:
        with pytest.raises(TpuSetupError, match="lets 2 runs use the TPU at a time, and a TPU has one user"), held():
            pass
        assert of_the_limit("active_slots") == 0
    finally:
        tpu_lease.make_limit()


def test_the_second_waits_says_so_and_comes_when_the_first_has_left() -> None:
    tpu_lease.make_limit()
    tpu_log, order = TpuLog(), []

    def second() -> None:
        with held(tpu_log):
            order.append("second")

    thread = threading.Thread(target=second)
    with held():
        thread.start()
        wait_until(lambda: len(tpu_log.entries) > 0)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert [(entry.event, entry.what) for entry in tpu_log.entries] == [
        ("wait", "waits for its turn: another flow run has the TPU")
    ]


def test_who_waits_for_too_long_gives_up() -> None:
    tpu_lease.make_limit()
    tpu_log = TpuLog()
    with (
        held(),
        pytest.raises(TpuInUseError, match="another flow run has the TPU, for 0 s"),
        held(tpu_log, patience=0.2),
    ):
        pass
    assert [entry.event for entry in tpu_log.entries] == ["wait", "give up"]


def lose_the_lease(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes the leases that are given, so that a test can take them back as the server does when they have run out."""
    given: list[Any] = []
    take = tpu_lease._Slot.take

    def noted(slot: Any) -> bool:
        taken = take(slot)
        given.append(slot.lease)
        return taken

    monkeypatch.setattr(tpu_lease._Slot, "take", noted)
    return given


def test_a_slot_that_was_lost_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tpu_lease.make_limit()
    given, ending = lose_the_lease(monkeypatch), Ending()
    with held(ending=ending), get_client(sync_client=True) as client:
        client.release_concurrency_slots_with_lease(given[0])
        wait_until(lambda: len(given) == 2)
        assert of_the_limit("active_slots") == 1
    assert ending.error is None
    assert of_the_limit("active_slots") == 0


def test_a_slot_that_another_run_has_by_now_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tpu_lease.make_limit()
    given, ending = lose_the_lease(monkeypatch), Ending()
    with get_client(sync_client=True) as client, held(ending=ending):
        # Between two renewals: the lease runs out, and the slot goes to another.
        keep = threading.Lock()
        monkeypatch.setattr(tpu_lease._Slot, "keep", _locked(tpu_lease._Slot.keep, keep))
        with keep:
            client.release_concurrency_slots_with_lease(given[0])
            response = client.increment_concurrency_slots_with_lease(["tpu"], 1, "concurrency", 60)
        wait_until(lambda: ending.error is not None)
        assert of_the_limit("active_slots") == 1
    assert isinstance(ending.error, TpuInUseError)
    assert of_the_limit("active_slots") == 1, "it is the other's"
    with get_client(sync_client=True) as client:
        client.release_concurrency_slots_with_lease(response.json()["lease_id"])


def _locked(method: Callable[[Any], bool], lock: threading.Lock) -> Callable[[Any], bool]:
    def locked(slot: Any) -> bool:
        with lock:
            return method(slot)

    return locked
