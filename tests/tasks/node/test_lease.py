"""The lease that lets one flow at a time use a node, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from podline.errors import TpuInUseError
from podline.store.opening import open_store
from podline.tasks.node import lease
from podline.tpu.tpu_log import TpuLog
from podline.tpu_settings import ApiSettings, Limits, TpuSettings

pytestmark = pytest.mark.usefixtures("prefect_server")
NODE = "night"
AWAY = {PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}


def users() -> int:
    with get_client(sync_client=True) as client:
        limit = client.read_global_concurrency_limit_by_name(lease.limit_of(NODE))
    assert limit.limit == 1
    return limit.active_slots


def wait_with(root: Path, turn: float, hear: Callable[[str], object] = str) -> list[tuple[str, str]]:
    """A flow that waits for its turn, and what its TPU log tells."""
    api = ApiSettings(project="p", zone="z")
    tpu = TpuSettings(node=NODE, api=api, placement="node", limits=Limits(turn=turn))
    tpu_log = TpuLog(hear, open_store(root), "runs/sample-1")

    @flow
    def waits() -> int:
        with lease.placed(tpu, tpu_log):
            return users()

    assert waits() == 1
    return [(entry.event, entry.what) for entry in tpu_log.entries]


def test_one_at_a_time_has_it_even_where_a_person_raised_the_limit() -> None:
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(lease.limit_of(NODE), 2)
    with lease.lease(NODE):
        assert users() == 1
        with pytest.raises(TpuInUseError, match="another run has the node night"), lease.lease(NODE):
            pass
        with lease.lease("another"):
            pass
    assert users() == 0


def test_a_server_that_is_away_at_the_end_fails_nothing() -> None:
    with temporary_settings(), lease.lease(NODE):
        assert users() == 1
        away = temporary_settings(AWAY)
        away.__enter__()
    away.__exit__(None, None, None)
    with get_client(sync_client=True) as client:  # as the server does when the lease has run out
        client.delete_global_concurrency_limit_by_name(lease.limit_of(NODE))


def test_who_waits_says_so_and_comes_when_the_other_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_ASK_SECONDS", 0.2)
    has_it, over = threading.Event(), threading.Event()

    def other() -> None:
        with lease.lease(NODE):
            has_it.set()
            over.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert has_it.wait(60)
    with pytest.raises(TpuInUseError, match="another run has the node night, for 0"):
        wait_with(tmp_path / "first", turn=0.1)
    # A log of its own: one that goes on says nothing of a wait that it knows.
    told = wait_with(tmp_path / "second", turn=60, hear=lambda _: over.set())
    thread.join()
    assert told == [("wait", "waits for its turn: another run has the node night")]
