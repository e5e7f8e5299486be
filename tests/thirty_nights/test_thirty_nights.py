"""A few nights with faults; see drive_nights.py, which drives thirty."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_a_few_nights(tmp_path: Path) -> None:
    # By a process of its own, since it is a client of another server than the other tests' one.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, HERE / "drive_nights.py", "--short", "--folder", tmp_path],
        env=ours | {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE.parent / "support")))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "nights.md").read_text()
    assert table in done.stdout
    flow, raises, worker = table.splitlines()[2:]
    assert "| flow process killed, in train | Crashed after " in flow
    assert "train begun 2 times; Completed |" in flow
    assert "Failed: " in raises
    assert "raised by the plan of the nights" in raises
    assert "| worker killed, in evaluate | Crashed after " in worker
    assert worker.endswith("| convert, validate, train |")
