"""The supervisor with real processes: every way in which a stage ends, and what is left of it afterwards."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from small_stages import NOISE, ActResult, ActSpec
from waiting import wait_until

from podline.base import errors
from podline.base.progress import Event
from podline.settings.machine import Settings
from podline.stages.supervision import processes
from podline.stages.supervision.supervisor import Ending, run_stage
from podline.store import locks
from podline.store.opening import open_store

TESTS = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("in_children")


def act(root: Path | str, name: str, listener: Any = None, number: int = 0, **limits: float) -> ActResult:
    spec = ActSpec(root=str(root), act=name, number=number)
    return run_stage(spec, listener or (lambda _event: None), Settings(**limits))


def wait_for(path: Path) -> int:
    """The number in a note, once it is there."""
    wait_until(path.exists, every=0.02)
    return int(path.read_text())


def assert_gone(process: int) -> None:
    """It ends soon; a zombie has ended."""
    wait_until(lambda: processes.parent(process) is None, 10, every=0.05)


def test_a_stage_runs_in_a_process_of_its_own_and_is_found_the_second_time(tmp_path: Path) -> None:
    events: list[Event] = []
    first = act(tmp_path, "work", events.append, number=7)
    assert (first.number, first.reused) == (7, False)
    assert first.process != os.getpid()
    assert [event["event"] for event in events] == ["start", "progress", "log", "progress", "result"]
    assert all(event["stage"] == "act" for event in events)

    events.clear()
    second = act(tmp_path, "work", events.append, number=7)
    assert second == first.model_copy(update={"reused": True, "spans": {}})
    assert [event["event"] for event in events] == ["start", "result"]
    assert events[-1]["result"]["reused"] is True


def test_what_a_child_prints_goes_to_its_log_and_never_blocks_it(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event["event"] == "log":
            (log,) = (tmp_path / ".podline" / "logs").iterdir()
            with locks.locked(log, wait=False) as free:
                assert not free, "a log in use can be deleted"

    act(tmp_path, "noise", listen)
    assert [event["done"] for event in events if event["event"] == "progress"] == [0, *range(20_000), 2]
    assert {"event": "log", "stage": "act", "level": "warning", "message": "that was loud"} in events
    (log,) = (tmp_path / ".podline" / "logs").iterdir()
    assert log.stat().st_size == 20_000 * 2 * 101
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "number", "error", "message"),
    [
        ("bad source", 0, errors.SourceError, "a source that cannot be"),
        ("own error", 0, errors.PodlineError, "^the words of a package$"),
        ("no space", 0, errors.StoreError, "no space left on the device"),
        ("killed", 0, errors.ChildKilledError, "killed by SIGKILL"),
        ("bus", 0, errors.ChildKilledError, "killed by SIGBUS"),
        ("signalled", 36, errors.ChildKilledError, "killed by signal 36; its process id was"),
    ],
)
def test_a_failure_is_raised_by_its_class_and_told(
    tmp_path: Path, name: str, number: int, error: type[errors.PodlineError], message: str
) -> None:
    events: list[Event] = []
    with pytest.raises(error, match=message) as caught:
        act(tmp_path, name, events.append, number)
    assert type(caught.value) is error
    assert events[-1] == {"event": "error", "stage": "act", "error": caught.value.to_json()}


@pytest.mark.parametrize(
    ("share", "more", "error", "message", "tries"),
    [
        (0.8, 400 << 20, errors.TooLittleMemoryError, "; .*batch_size", 0),
        (0.01, 400 << 20, errors.OutOfMemoryError, "; end the programs", 1),
        (200.0, 0, errors.OutOfMemoryError, "; end the programs", 1),  # no more than what this process held
    ],
)
def test_a_child_that_the_kernel_kills_for_memory_is_tried_again_unless_it_held_most_of_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    more: int,
    error: type[errors.PodlineError],
    message: str,
    tries: int,
) -> None:
    # A child begins with the peak of its parent, which other tests have raised.
    own = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr("podline.stages.supervision.supervisor.memory_kills", iter((3, 4)).__next__)
    monkeypatch.setattr("podline.stages.supervision.supervisor.memory_limit", lambda: int((own + more) / share))
    with pytest.raises(error, match=f"act: killed by the kernel .*; it used up to .*{message}") as caught:
        act(tmp_path, "killed", number=own + more if more else 0)
    assert type(caught.value) is error
    budgets = errors.Budgets()
    assert [budgets.after(caught.value) is not None for _ in range(2)] == [tries > 0, False]


def test_a_bug_is_named_and_its_traceback_is_in_the_log(tmp_path: Path) -> None:
    with pytest.raises(errors.PodlineError, match="act: ZeroDivisionError: nobody thought of this") as caught:
        act(tmp_path, "bug")
    assert type(caught.value) is errors.PodlineError
    (log,) = (tmp_path / ".podline" / "logs").iterdir()
    assert str(log) in str(caught.value)
    assert "Traceback" in log.read_text()


def test_an_end_without_a_word_comes_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(errors.PodlineError, match=r"exit code 3 and no result\n.*\n  F0000 .*: a word\n  last words$"):
        act(tmp_path, "exit")
    [log] = (tmp_path / ".podline" / "logs").iterdir()
    assert NOISE in log.read_text(), "what is left out of the message is in the file"


def test_in_a_bucket_the_log_outlives_the_machine(gcs_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podline.stages.supervision.supervisor._LOG_SECONDS", 0.05)
    monkeypatch.setattr("podline.stages.supervision.supervisor._LOG_BYTES", 1_000_000)
    store, while_running = open_store(gcs_root), list[int]()

    def listen(event: Event) -> None:
        if event["event"] == "log":
            deadline = time.monotonic() + 30
            while not store.list("logs") and time.monotonic() < deadline:
                time.sleep(0.05)
            while_running.append(len(store.list("logs")))

    act(gcs_root, "noise", listen)
    assert while_running == [1]
    [log] = store.list("logs")
    assert len(store.read_bytes(log)) == 1_000_000
    with pytest.raises(errors.PodlineError, match="exit code 3"):
        act(gcs_root, "exit")
    assert [NOISE in store.read_bytes(name).decode() for name in store.list("logs")].count(True) == 1


def test_a_child_that_is_killed_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    with pytest.raises(errors.ChildKilledError):
        act(tmp_path, "killed with a temporary file")
    assert wait_for(tmp_path / "temporary") == 1
    assert list(shared.iterdir()) == []
    assert list((tmp_path / ".podline" / "tmp").iterdir()) == []


@pytest.fixture(scope="module")
def limit(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds in which a child on this machine starts and acts many times over, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{TESTS / 'support'}:{TESTS.parent}")
        started = time.monotonic()
        act(tmp_path_factory.mktemp("measured"), "work")
    return max(5.0, 5 * (time.monotonic() - started))


def test_a_hang_against_its_own_pace_is_found_sooner_and_says_where_each_thread_was(
    tmp_path: Path, limit: float
) -> None:
    events: list[Event] = []
    with pytest.raises(errors.HangError, match=r"for [\d.]+ s .*due after 0\.01 s; .*setting hang_floor") as caught:
        act(tmp_path, "stall", events.append, silence=20 * limit, hang_floor=limit, grace=240.0)
    assert re.search(
        r"main thread: .*small_stages\.py:\d+ in _sleep, called from podline/[\w/]+\.py:\d+", str(caught.value)
    )
    assert re.search(r"another thread: .*small_stages\.py:\d+ in _blocked_reader", str(caught.value))
    assert isinstance(caught.value, errors.TransientError)
    assert not any(event["event"] == "pace" for event in events), "that is between child and supervisor"
    (log,) = (tmp_path / ".podline" / "logs").iterdir()
    assert "in _blocked_reader" in log.read_text()
    assert "in _blocked_reader" in next(event["message"] for event in events if event.get("level") == "warning")
    assert_gone(wait_for(tmp_path / "sleeping"))


def ended_when_asleep(root: Path, name: str, grace: float, number: int = 0) -> list[Event]:
    """The events of a stage that its parent ends as soon as it says that it is asleep."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if event.get("message") == "asleep":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        act(root, name, listen, number, grace=grace)
    return events


def test_a_stage_that_is_interrupted_has_time_to_save(tmp_path: Path) -> None:
    events = ended_when_asleep(tmp_path, "save when asked", grace=240.0)
    assert (tmp_path / "saved").exists()
    assert events[-1]["message"] == "saved at SIGTERM"
    assert_gone(wait_for(tmp_path / "sleeping"))


@pytest.mark.parametrize("is_ended", [False, True])
def test_grandchildren_end_with_a_stage_however_it_ends(tmp_path: Path, is_ended: bool) -> None:
    if is_ended:
        ended_when_asleep(tmp_path, "family", grace=0.3, number=1)
    else:
        act(tmp_path, "family")
    for name in ("near", "far"):
        assert_gone(wait_for(tmp_path / name))


def _parent(root: Path, name: str, number: int = 0) -> subprocess.Popen[bytes]:
    """A process that supervises a stage, to be killed."""
    code = (
        "from small_stages import ActSpec; from podline.stages.supervision.supervisor import run_stage; "
        f"run_stage(ActSpec(root={str(root)!r}, act={name!r}, number={number}), print)"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, start_new_session=True)


def test_kill_9_of_the_parent_ends_the_child_and_its_family(tmp_path: Path) -> None:
    parent = _parent(tmp_path, "family", number=1)
    child = wait_for(tmp_path / "sleeping")
    parent.kill()
    parent.wait()
    for process in (child, wait_for(tmp_path / "near"), wait_for(tmp_path / "far")):
        assert_gone(process)


def test_the_start_after_a_kill_9_of_parent_and_child_removes_their_temporary_files(tmp_path: Path) -> None:
    parent = _parent(tmp_path, "sleep")
    child = wait_for(tmp_path / "sleeping")
    os.kill(parent.pid, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    parent.wait()
    temporary = tmp_path / ".podline" / "tmp"
    assert len(list(temporary.iterdir())) == 2  # a folder and its lock
    act(tmp_path, "work")
    assert list(temporary.iterdir()) == []


def test_kill_9_of_the_parent_leaves_the_child_time_to_save(tmp_path: Path) -> None:
    parent = _parent(tmp_path, "save when asked")
    child = wait_for(tmp_path / "sleeping")
    parent.kill()
    parent.wait()
    wait_for(tmp_path / "saved")
    assert_gone(child)


def test_a_second_start_waits_for_the_first_and_takes_its_result(tmp_path: Path) -> None:
    messages: list[str] = []
    first: list[ActResult] = []
    thread = threading.Thread(target=lambda: first.append(act(tmp_path, "work until told", number=5)))
    thread.start()
    wait_for(tmp_path / "working")

    def hear(event: Event) -> None:
        messages.append(event.get("message", ""))
        if "another process does the same work" in messages[-1]:
            (tmp_path / "enough").write_text("")

    second = act(tmp_path, "work until told", hear, number=5)
    thread.join()
    assert second == first[0].model_copy(update={"reused": True, "spans": {}})
    assert any("another process does the same work" in message for message in messages)


def test_an_unwritable_root_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.StoreError, match="cannot write to the store"):
        act(tmp_path / "file", "work")


def lose_node(root: Path, act: str, *, at_once: bool, listener: Any) -> ActResult:
    """Run a stage whose node fails when it is asleep."""
    ending, spec = Ending(), ActSpec(root=str(root), act=act, number=5)

    def lose() -> None:
        wait_for(root / "sleeping")
        ending.ask(errors.HangError("unhealthy"), at_once=at_once)

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        return run_stage(spec, listener, Settings(grace=5.0), ending)
    finally:
        thread.join()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_complete_when_its_node_fails_is_done_and_all_else_has_failed(tmp_path: Path, at_once: bool) -> None:
    events: list[Event] = []
    result = lose_node(tmp_path, "finish and stay", at_once=at_once, listener=events.append)
    assert (result.number, result.reused) == (5, False)
    assert [event["event"] for event in events if event["event"] in ("result", "error")] == ["result"]
    process = wait_for(tmp_path / "sleeping")
    assert_gone(process)
    (tmp_path / "sleeping").unlink()
    with pytest.raises(errors.HangError, match="unhealthy"):
        lose_node(tmp_path, "sleep", at_once=at_once, listener=lambda _event: None)
