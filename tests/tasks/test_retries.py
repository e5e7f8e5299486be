"""What a task run that is tried again says: on its state and in its log, one line; and what it says when it fails."""

from __future__ import annotations

import logging
import re
import signal
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import Task, flow
from prefect.client.orchestration import get_client
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings
from prefect.states import State

from podline.errors import PodlineError, SourceError, TransientError
from podline.tasks import retries
from podline.tasks.failures import explained
from podline.tasks.retries import run

pytestmark = pytest.mark.usefixtures("prefect_server")


class FlakyError(TransientError):
    """A cause with two retries."""

    retry_delays = (1.0, 0.01)
    heading = "Flaky"


def act(failures: list[BaseException]) -> str:
    """Fails once for each of the failures."""
    if failures:
        raise failures.pop(0)
    return "done"


def attempt(*failures: BaseException) -> tuple[UUID, Any]:
    """A flow that calls the task: its id, and what it answers."""
    ids: list[UUID] = []

    @flow
    @explained
    def calling() -> Any:
        ids.append(UUID(flow_run.id))
        return run(Task(act, name="act", persist_result=False), {"failures": list(failures)})

    answer: Any = calling(return_state=True)
    return ids[0], answer


def states(run_id: UUID) -> list[State[Any]]:
    """The states of the task, in their order, as soon as the server knows the last one."""
    deadline = time.monotonic() + 240
    while True:
        with get_client(sync_client=True) as client:
            [task] = [found for found in client.read_task_runs() if found.flow_run_id == run_id] or [None]
            found = client.request("GET", "/task_run_states/", params={"task_run_id": str(task.id)}) if task else None
            history = sorted(found.json(), key=lambda state: state["timestamp"]) if found else []
        if (history and history[-1]["type"] in {"COMPLETED", "FAILED"}) or time.monotonic() > deadline:
            return [State.model_validate(state) for state in history]
        time.sleep(0.2)


def lines(run_id: UUID, until: str) -> list[tuple[int, str]]:
    """The run's log, as soon as it has a line: levels and messages."""
    deadline = time.monotonic() + 240
    while True:
        with get_client(sync_client=True) as client:
            wanted = {"logs": {"flow_run_id": {"any_": [str(run_id)]}}, "sort": "TIMESTAMP_ASC"}
            found = client.request("POST", "/logs/filter", json=wanted).json()
        told = [(line["level"], line["message"]) for line in found]
        if any(until in message for _, message in told) or time.monotonic() > deadline:
            return told
        time.sleep(0.2)


def test_a_retry_is_one_line_in_the_log_and_on_the_state() -> None:
    run_id, answer = attempt(FlakyError("act: killed by SIGKILL; choose another --root\n  the end of its log"))
    assert answer.is_completed()
    [waiting] = [state for state in states(run_id) if state.name == "AwaitingRetry"]
    said = waiting.message
    # The jitter is at most 30 %.
    assert re.fullmatch(r"trying again in (1|0\.\d) s \(1 of 2\): killed by SIGKILL; choose another Store", str(said))
    told = lines(run_id, "Finished in state Completed")
    assert [message for level, message in told if level >= logging.WARNING] == ["  the end of its log", f"act: {said}"]
    assert not any("Retry 1/" in message or "Traceback" in message for _, message in told)


def test_a_failure_of_ours_is_one_line_with_cause_and_remedy_and_no_traceback() -> None:
    run_id, answer = attempt(SourceError("act: x.tar.gz has 3 bytes vs 7; use `podline run mnist --source x.tar.gz`"))
    said = "Raw data: act: x.tar.gz has 3 bytes vs 7; choose the recipe mnist"
    assert answer.message == said
    assert states(run_id)[-1].message == said
    told = lines(run_id, "Finished in state Failed")
    assert not any("Traceback" in message for _, message in told)
    assert said in told[-1][1]
    with pytest.raises(SourceError):
        answer.result()


def test_what_was_tried_again_says_how_often() -> None:
    run_id, answer = attempt(*[FlakyError("act: it hangs")] * 3)
    assert states(run_id)[-1].message == "Flaky: act: it hangs; tried 3 times"
    assert answer.is_failed()


def test_a_bug_keeps_its_traceback() -> None:
    run_id, answer = attempt(KeyError("x"))
    assert answer.is_failed()
    told = lines(run_id, "Traceback")
    assert any("Traceback" in message and "KeyError: 'x'" in message for _, message in told)


def test_a_task_whose_run_is_cancelled_is_cancelled_and_has_not_crashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "get_intent", lambda: "cancel")
    # Without a flow, which would end this process by the signal.
    alone = temporary_settings({PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"})
    engine = retries._Engine(task=Task(act, name="act", persist_result=False), parameters={"failures": []})
    with alone, pytest.raises(TerminationSignal), engine.start(), engine.run_context():
        raise TerminationSignal(signal.SIGTERM)
    assert engine.state.is_cancelled()
    assert "Retry goes on from there" in str(engine.state.message)


def test_every_kind_of_failure_has_a_row_in_the_docs() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "operations.md").read_text()
    kinds, headings = [PodlineError], set[str]()
    while kinds:
        kind = kinds.pop()
        if kind.__module__ == PodlineError.__module__:
            kinds += kind.__subclasses__()
            headings.add(kind.heading)
    missing = {heading for heading in headings if f"*{heading}:*" not in page}
    assert not missing
