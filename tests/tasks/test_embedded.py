"""A flow on its own Prefect server leaves nothing in the user's home, and nothing running, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_stages
from prefect import flow
from pydantic import BaseModel
from small_stages import ACT, ActSpec
from waiting import wait_until

from podline.tasks.stages import StageTask

SCRIPT = """
import json, sys
from podline.base.interruptions import Interruption, interruptible
from podline.settings.machine import Settings
from small_stages import ActSpec
from podline.tasks.embedded import run_flow
root, act = sys.argv[1:]
spec = ActSpec(root=root, act=act, number=6)
try:
    with interruptible():
        print(json.dumps(run_flow("test_embedded:acting", spec, Settings(root=root), lambda event: None)))
except Interruption as error:
    sys.stderr.write(str(error))
    sys.exit(143)
"""


@flow(name="acting")
def acting(parameters: BaseModel) -> dict[str, Any]:
    """One act, in a process that a test starts and kills."""
    return StageTask(ACT)(ActSpec.model_validate(parameters.model_dump())).model_dump(mode="json")


# A server takes 10 to 60 s to come up, and each of these starts one or two.
pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    yield tmp_path / "root"
    wait_until(lambda: not processes_of(tmp_path / "root"), 60)
    assert list((tmp_path / "home").rglob("*")) == []


def start(root: Path, act: str, *before: str) -> subprocess.Popen[str]:
    """A process with an embedded run of one act, in an empty home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT", "XDG_", "PODLINE"))}
    folders = (Path(__file__).parent, Path(small_stages.__file__).parent)
    ours = {"HOME": str(root.parent / "home"), "PYTHONPATH": os.pathsep.join(map(str, folders))}
    return subprocess.Popen(
        [*before, sys.executable, "-c", SCRIPT, str(root), act],
        env={**kept, **ours, "PREFECT_API_URL": "http://127.0.0.1:1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(root: Path) -> list[int]:
    """The living processes that name this root on their command line, and those of its stages."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(root).encode() in command and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def test_sigterm_lets_the_stage_save_and_leaves_nothing_running(root: Path) -> None:
    process = start(root, "save when asked")
    wait_until((root / "sleeping").exists)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 143
    assert "asked to end (SIGTERM)" in err
    assert (root / "saved").exists()


def test_kill_9_of_the_run_ends_all_and_that_of_its_server_costs_another_start_and_no_more(root: Path) -> None:
    killed = start(root, "slow work")
    wait_until((root / "working").exists, 300)
    assert len(processes_of(root)) >= 3
    killed.kill()
    killed.communicate()
    wait_until(lambda: not processes_of(root), 60)
    (root / "working").unlink()

    process = start(root, "slow work")
    wait_until((root / "working").exists)
    (server,) = (
        candidate
        for candidate in processes_of(root)
        if b"podline.deployments.server" in Path(f"/proc/{candidate}/cmdline").read_bytes()
    )
    os.kill(server, signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert json.loads(out)["number"] == 6
    with contextlib.closing(sqlite3.connect(root / ".podline" / "prefect" / "prefect.db")) as database:
        tasks = database.execute("select name, state_name from task_run").fetchall()
    # The first is of the run that was killed.
    assert sorted(tasks) == [("act", "Completed"), ("act", "Running")]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can make a network")
def test_a_machine_with_the_loopback_address_of_ipv6_alone_runs_flows(root: Path) -> None:
    alone = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"'
    process = start(root, "work", "unshare", "--net", "sh", "-c", alone, "sh")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out)["number"] == 6
