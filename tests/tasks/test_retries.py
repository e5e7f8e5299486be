"""A task run says in one line why it is tried again or failed; only a bug has a traceback."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import State
from prefect_servers import lines_of, tasks_of
from small_stages import ACT, ActResult, ActSpec
from waiting import wait_until

from podline.base.errors import ServerAwayError, SourceError, TransientError
from podline.tasks import server, stages, stops
from podline.tasks.stages import StageTask
from podline.tasks.stops import one_line_failures

pytestmark = pytest.mark.usefixtures("prefect_server")


class FlakyError(TransientError):
    """A cause with two retries."""

    retry_delays = (1.0, 0.01)
    heading = "Flaky"


act = StageTask(ACT)


@pytest.fixture(autouse=True)
def failures(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the stage raises, one after the other, before it does its work."""
    left: list[BaseException] = []

    def perform(spec: ActSpec, listener: Any, *_rest: Any, **_more: Any) -> ActResult:
        listener({"event": "log", "stage": "act", "level": "info", "message": "at work"})
        if left:
            raise left.pop(0)
        return ActResult(number=spec.number, process=0)

    monkeypatch.setattr(stages, "perform", perform)
    return left


Attempt = Callable[..., tuple[UUID, Any]]


@pytest.fixture
def attempt(tmp_path: Path, failures: list[BaseException]) -> Attempt:
    """Run a flow that calls the task, which fails so at first; return its id, and what it answers."""

    def run(*causes: BaseException) -> tuple[UUID, Any]:
        ids: list[UUID] = []
        failures.extend(causes)

        @flow
        @one_line_failures
        def calling() -> Any:
            ids.append(UUID(flow_run.id))
            return act(ActSpec(root=str(tmp_path), act="work", number=4)).number

        answer: Any = calling(return_state=True)
        return ids[0], answer

    return run


def states(run_id: UUID) -> list[State[Any]]:
    """The states of the task, in their order, as soon as the server knows the last one."""
    history: list[State[Any]] = []

    def ended() -> bool:
        with get_client(sync_client=True) as client:
            for task in tasks_of(client, run_id):
                history[:] = sorted(client.read_task_run_states(task.id), key=lambda state: state.timestamp)
        return bool(history) and history[-1].is_final()

    wait_until(ended, every=0.2)
    return history


def lines(run_id: UUID, until: str) -> list[tuple[int, str]]:
    """The run's log, as soon as it has a line: levels and messages."""
    told: list[tuple[int, str]] = []

    def has_it() -> bool:
        with get_client(sync_client=True) as client:
            told[:] = lines_of(client, run_id)
        return any(until in message for _, message in told)

    wait_until(has_it, every=0.2)
    return told


def test_a_retry_is_one_line_in_the_log_and_on_the_state(attempt: Attempt) -> None:
    run_id, answer = attempt(FlakyError("act: killed by SIGKILL; choose another --root\n  the end of its log"))
    assert answer.is_completed()
    [waiting] = [state for state in states(run_id) if state.name == "AwaitingRetry"]
    said = waiting.message
    # The jitter is at most 30 %.
    assert re.fullmatch(r"trying again in (1|0\.\d) s \(1 of 2\): killed by SIGKILL; choose another Store", str(said))
    told = lines(run_id, "Finished in state Completed")
    assert [message for level, message in told if level >= logging.WARNING] == ["  the end of its log", f"act: {said}"]
    assert any("at work" in message for _, message in told)
    assert not any("Retry 1/" in message or "Traceback" in message for _, message in told)


def test_a_failure_of_ours_is_one_line_with_cause_and_remedy_and_no_traceback(attempt: Attempt) -> None:
    run_id, answer = attempt(SourceError("act: x.tar.gz has 3 bytes, expected 7; give another --source"))
    said = "Raw data: act: x.tar.gz has 3 bytes, expected 7; give another Source"
    assert answer.message == said
    history = states(run_id)
    assert history[-1].message == said
    assert "AwaitingRetry" not in {state.name for state in history}
    told = lines(run_id, "Finished in state Failed")
    assert not any("Traceback" in message for _, message in told)
    assert (logging.ERROR, said) in told
    with pytest.raises(SourceError):
        answer.result()


def test_what_was_tried_again_says_how_often(attempt: Attempt) -> None:
    run_id, answer = attempt(*[FlakyError("act: it hangs")] * 3)
    assert states(run_id)[-1].message == "Flaky: act: it hangs; tried 3 times"
    assert answer.is_failed()


def test_a_bug_is_told_with_its_traceback_and_without_an_earlier_cause(attempt: Attempt) -> None:
    run_id, answer = attempt(FlakyError("act: killed by SIGKILL"), ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        answer.result()
    assert [state.name for state in states(run_id)].count("AwaitingRetry") == 1
    told = lines(run_id, "Traceback")
    assert any("Traceback" in message and "ZeroDivisionError: a bug" in message for _, message in told)


@pytest.mark.parametrize(("is_cancelled", "end"), [(True, "Retry goes on from there"), (False, "the run goes on")])
def test_a_task_whose_run_is_ended_is_cancelled_and_has_not_crashed(
    tmp_path: Path, failures: list[BaseException], monkeypatch: pytest.MonkeyPatch, is_cancelled: bool, end: str
) -> None:
    monkeypatch.setattr(stops, "is_cancelled", lambda: is_cancelled)
    monkeypatch.setattr(stops.environment, "of_prefect_worker", lambda: True)

    @flow
    def calling() -> str:
        with pytest.raises(TerminationSignal):
            act(ActSpec(root=str(tmp_path), act="work", number=4))
        return str(flow_run.id)

    failures.append(TerminationSignal(signal.SIGTERM))
    [*_, last] = states(run := UUID(calling()))
    assert last.is_cancelled()
    assert end in str(last.message)
    told = lines(run, "Finished in state Completed")
    assert [end in message for _, message in told].count(True) == 1


def test_a_flow_whose_server_is_away_says_so() -> None:
    """This fails if Prefect's client raises its errors in another way."""
    away = "http://127.0.0.1:1/api"
    with temporary_settings({PREFECT_API_URL: away, PREFECT_CLIENT_MAX_RETRIES: 0}):
        with pytest.raises(ServerAwayError, match=f"the Prefect server {away} does not answer"), server.explained():
            flow(lambda: None, name="nothing")()
        with pytest.raises(RuntimeError, match="another"), server.explained():
            raise RuntimeError("another")
