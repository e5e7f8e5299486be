"""A stage as a task on a real server: what is tried again, after how long, and how often."""

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
TESTS = Path(__file__).parent.parent

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(autouse=True)
def _small_stages_in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "support"))


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


def test_a_transient_error_that_stays_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors.ChildKilledError, "retry_delays", (0.1, 0.1))
    with pytest.raises(errors.ChildKilledError):
        acting(str(tmp_path), "killed")
    assert newest_task().run_count == 3


def test_how_often_each_budget_is_tried_again() -> None:
    classes, causes = [errors.TransientError], []
    while classes:
        causes.append(classes.pop())
        classes += causes[-1].__subclasses__()
    budgets = {cause.budget: 0 for cause in causes}
    for cause in causes:
        budgets[cause.budget] = max(budgets[cause.budget], len(cause.retry_delays))
    assert budgets == {"failures": 3, "preemptions": 5, "unexplained": 1}


@pytest.mark.parametrize(("name", "error"), [("bad source", errors.SourceError), ("bug", errors.PodlineError)])
def test_what_would_not_help_is_not_tried(tmp_path: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        acting(str(tmp_path), name)
    assert newest_task().run_count == 1


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
