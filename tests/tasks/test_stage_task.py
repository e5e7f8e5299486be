"""A stage as a task on a real server: its child, its log, its budgets."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from small_stages import ACT, ActSpec

from podline import errors
from podline.progress import heard_by
from podline.tasks.stages import StageTask

act = StageTask(ACT)

pytestmark = pytest.mark.usefixtures("prefect_server", "in_children")


@flow
def acting(root: str, name: str) -> int:
    """One act."""
    return act(ActSpec(root=root, act=name, number=4)).number


def newest_task() -> Any:
    with get_client(sync_client=True) as client:
        return max(client.read_task_runs(), key=lambda run: run.created)


def test_a_killed_child_is_tried_again_after_its_own_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors.ChildKilledError, "retry_delays", (1.0, 60.0))
    events: list[dict[str, Any]] = []
    started = time.monotonic()
    with heard_by(events.append):
        assert acting(str(tmp_path), "killed once") == 4
    # The jitter is at most 30 %.
    assert time.monotonic() - started > 0.7
    assert newest_task().run_count == 2
    (warning,) = (event["message"] for event in events if event.get("level") == "warning")
    assert re.fullmatch(
        r"trying again in (1|0\.[789]) s \(1 of 2\): killed by SIGKILL \(.*\); it was process \d+", warning
    )
    assert [event["event"] for event in events if event["event"] in ("error", "result")] == ["error", "result"]


def test_the_log_of_a_stage_is_on_its_run(tmp_path: Path) -> None:
    acting(str(tmp_path), "work")
    deadline = time.monotonic() + 240
    messages: list[str] = []
    while "act: at work" not in messages and time.monotonic() < deadline:
        with get_client(sync_client=True) as client:
            response = client.request("POST", "/logs/filter", json={"sort": "TIMESTAMP_DESC"})
        messages = [line["message"] for line in response.json()]
        time.sleep(0.3)
    assert "act: at work" in messages
