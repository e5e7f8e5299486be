"""Processes that are started ahead: they take over their stage's work or end, and none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_stages import ACT, ActResult, ActSpec
from waiting import wait_until

from podline.base.errors import SourceError
from podline.base.progress import Event
from podline.settings.machine import Settings
from podline.stages.supervision import processes
from podline.stages.supervision.starts import started_ahead
from podline.stages.supervision.supervisor import run_stage
from podline.stages.table import CHAIN
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("in_children")


def act(root: Path, name: str, number: int = 0, listener: Any = lambda _event: None) -> ActResult:
    return run_stage(ActSpec(root=str(root), act=name, number=number), listener, Settings())


def waiting(parent: int = os.getpid()) -> list[int]:
    """The processes that were started ahead and have ended neither their wait nor their work."""
    return [each for each in processes.children(parent) if b"--ahead" in Path(f"/proc/{each}/cmdline").read_bytes()]


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    # /proc shows a zombie as soon as the main thread has ended, wait(2) when the last thread has.
    wait_until(lambda: processes.exit_code(process) is not None)


def victim_score(process: int) -> int:
    return int(Path(f"/proc/{process}/oom_score_adj").read_text())


def test_the_next_stage_runs_in_a_process_that_was_started_while_the_first_ran(tmp_path: Path) -> None:
    usual, scores = victim_score(os.getpid()), list[int]()

    def look(event: Event) -> None:
        if event["event"] == "log":
            scores.append(victim_score(ahead))

    with started_ahead([ACT, ACT], open_store(str(tmp_path))):
        first = act(tmp_path, "work")
        [ahead] = waiting()
        wait_until(lambda: victim_score(ahead) == 1000)
        second = act(tmp_path, "noise", 1, look)
        assert second.process == ahead != first.process
        assert scores == [usual]
        assert len(waiting()) == 1  # for the stage after
    assert waiting() == []
    [log] = (tmp_path / ".podline" / "logs").glob(f"act-{ActSpec(root='', act='noise', number=1).digest()[:12]}.log")
    assert log.read_text().count("x" * 100) == 20_000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda patch, _: patch.setenv("HTTPS_PROXY", "http://elsewhere"),
        lambda patch, _: patch.chdir("/"),
        lambda _, process: kill(process),
    ],
    ids=["environment", "folder", "death"],
)
def test_a_process_that_a_new_one_would_differ_from_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch, int], None]
) -> None:
    with started_ahead([ACT, ACT], open_store(str(tmp_path))):
        act(tmp_path, "work")
        [ahead] = waiting()
        spoil(monkeypatch, ahead)
        second = act(tmp_path, "work", 1)
        assert (second.number, second.process != ahead) == (1, True)
        assert ahead not in waiting()


def test_none_waits_after_a_failure_too_long_or_while_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started_ahead([ACT, ACT], open_store(str(tmp_path))):
        with pytest.raises(SourceError):
            act(tmp_path, "bad source")
        assert waiting() == []
        monkeypatch.setattr("podline.stages.supervision.starts._AHEAD_SECONDS", 0.1)
        act(tmp_path, "work")
        wait_until(lambda: waiting() == [])
        monkeypatch.setattr("podline.stages.supervision.starts.free_memory", lambda: 1 << 30)
        act(tmp_path, "work", 1)
        assert waiting() == []


def test_kill_9_of_the_parent_ends_those_that_wait(tmp_path: Path) -> None:
    code = (
        "from small_stages import ACT, ActSpec\n"
        "from podline.store.opening import open_store\n"
        "from podline.stages.supervision.starts import started_ahead\n"
        "from podline.stages.supervision.supervisor import run_stage\n"
        f"root = {str(tmp_path)!r}\n"
        "with started_ahead([ACT, ACT], open_store(root)):\n"
        "    run_stage(ActSpec(root=root, act='sleep'), print)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, start_new_session=True)
    wait_until((tmp_path / "sleeping").exists)
    [ahead] = waiting(parent.pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: processes.parent(ahead) is None, 10)


def test_the_code_of_the_stages_initialises_no_device() -> None:
    code = (
        "import sys, podline.base.entry_points as points\n"
        f"for each in {[stage.run_at for stage in CHAIN]}: points.load(each)\n"
        "import tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(1)  # RuntimeError after the first use of a device\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
