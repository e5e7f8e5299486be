"""A run whose own process is killed has an entry all the same, with what was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_dataset import FINGERPRINT, publish_dataset

from podline.commands.runs import runs_group
from podline.documents.ledger_entry import Entry
from podline.ledger import ledger
from podline.ledger.killed import write_killed
from podline.ledger.recording import recorded
from podline.progress import silent
from podline.store.opening import open_store

WORK = """
    import sys, time
    from podline.ledger.recording import recorded
    from podline.progress import silent
    from podline.stages.specs import Result, ValidateSpec
    from podline.store.opening import open_store

    root, fingerprint, finished = sys.argv[1:]
    spec = ValidateSpec(root=root, dataset="sample", fingerprint=fingerprint, manifest_sha256="0" * 64)
    with recorded(open_store(root), "t", "flow", silent(), flow_run="f1") as notes:
        notes.asked(spec)
        time.sleep(1.0)
        if finished == "finished":
            notes.answered(spec, Result(seconds=0.9), 1.0)
        print("begun", flush=True)
        time.sleep(60)
"""


@contextmanager
def begun(root: Path, *, finished: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on: a stage of one second, and then nothing."""
    if not (root / "datasets").exists():
        publish_dataset(root)
    arguments = [str(root), FINGERPRINT, "finished" if finished else ""]
    command = [sys.executable, "-c", textwrap.dedent(WORK), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        yield process
        process.kill()


def entries(root: Path) -> list[Entry]:
    store = open_store(root)
    return [ledger.read(store, named.name) for named in ledger.names(store)]


@pytest.mark.parametrize("finished", [False, True])
def test_the_time_of_a_killed_run_is_lost_but_for_the_stages_that_were_done(tmp_path: Path, finished: bool):
    with begun(tmp_path, finished=finished) as process:
        write_killed(open_store(tmp_path))
        assert entries(tmp_path) == []  # it lives
        time.sleep(6.0)  # until its next sign of life
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    CliRunner().invoke(runs_group, ["list", "--root", str(tmp_path)], catch_exceptions=False)
    [entry] = entries(tmp_path)
    assert (entry.state, entry.error, entry.flow_run) == ("failed", "ChildKilledError", "f1")
    assert "its last sign of life" in entry.cause
    assert 4.0 < entry.seconds < 60.0
    assert sum(entry.spent.values()) == pytest.approx(entry.seconds, rel=0.02)
    assert entry.spent.get("validating", 0.0) == pytest.approx(0.9 if finished else 0.0)
    rest = entry.seconds - entry.spent["lost"] - entry.spent.get("between", 0.0) - entry.spent.get("store", 0.0)
    assert rest == pytest.approx(1.0 if finished else 0.0, abs=0.5)
    write_killed(open_store(tmp_path))
    assert len(entries(tmp_path)) == 1


def test_what_was_lost_goes_on_until_the_run_itself_goes_on(tmp_path: Path):
    with begun(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    time.sleep(2.0)
    with recorded(open_store(tmp_path), "t", "flow", silent(), flow_run="f1") as notes:
        notes.dropped = True
    [entry] = entries(tmp_path)
    assert entry.spent["lost"] == pytest.approx(entry.seconds, rel=0.1)
    assert entry.seconds > 3.0
