"""One training at a time on a machine; on a real server."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import httpx
import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.runtime import flow_run

from podline.tasks.runs import machine_turn
from podline.tasks.runs.machine_turn import LIMIT, WAITING, turn_to_train
from podline.tasks.runs.slot import Slot


@pytest.fixture
def client(prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    monkeypatch.setattr(machine_turn, "_ASK_SECONDS", 0.1)
    with get_client(sync_client=True) as client:
        yield client
        client.delete_global_concurrency_limit_by_name(LIMIT)


class Run:
    """A flow run in a thread of its own, whose only task trains until it is told to end."""

    def __init__(self) -> None:
        self.began, self.end, self.said = threading.Event(), threading.Event(), list[str]()
        self.answer = ""
        context = contextvars.copy_context()  # which server it is
        self._thread = threading.Thread(target=context.run, args=(self._run,))
        self._thread.start()

    def _run(self) -> None:
        @task(cache_policy=NO_CACHE)
        def train() -> None:
            with turn_to_train(self.said.append):
                self.began.set()
                assert self.end.wait(240)

        @flow
        def training() -> str:
            train()
            return str(flow_run.id)

        self.answer = training()

    def finish(self) -> UUID:
        self.end.set()
        self._thread.join(240)
        return UUID(self.answer)


def test_the_second_training_waits_is_shown_as_waiting_and_has_its_turn(client: SyncPrefectClient) -> None:
    first = Run()
    assert first.began.wait(240)
    second = Run()
    while not second.said:
        time.sleep(0.05)
    assert not second.began.is_set()
    waiting = [run for run in client.read_flow_runs() if run.state_name == WAITING]
    assert len(waiting) == 1
    name = client.read_flow_run(first.finish()).name
    assert second.began.wait(240)
    finished = client.read_flow_run(second.finish())
    assert finished.id == waiting[0].id
    assert finished.state_name == "Completed"
    # To wait is no start: after a crash it would begin again by itself, as any other.
    assert finished.run_count == 1
    assert second.said[0].startswith("waits for its turn on ")
    assert second.said[0].endswith(f": {name} trains there")
    assert second.said[-1] == "its turn has come"
    assert waiting[0].state is not None
    assert waiting[0].state.message == second.said[0]


def test_a_limit_that_a_person_raised_lets_two_train_at_once(client: SyncPrefectClient) -> None:
    client.upsert_global_concurrency_limit_by_name(LIMIT, 2)
    runs = [Run(), Run()]
    assert all(run.began.wait(240) for run in runs)
    for run in runs:
        run.finish()
    assert client.read_global_concurrency_limit_by_name(LIMIT).limit == 2


def test_a_server_that_does_not_answer_keeps_nobody_from_training(
    client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_slot: Slot) -> bool:
        raise httpx.ConnectError("nobody there")

    monkeypatch.setattr(Slot, "take", away)
    run = Run()
    assert run.began.wait(240)
    run.finish()
    assert "does not answer (nobody there)" in run.said[0]
