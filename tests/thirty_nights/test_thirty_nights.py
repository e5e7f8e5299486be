"""The plan of the nights, and a short form of them; see drive_nights.py, which is the long form."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from night_plan import STAGES, Fault, planned

HERE = Path(__file__).resolve().parent


def test_every_second_night_of_thirty_has_a_fault_and_each_fault_comes() -> None:
    plan = planned(30, 0)
    faults = [night.fault for night in plan if night.fault]
    assert [night.number for night in plan if night.fault] == list(range(2, 31, 2))
    assert set(faults) == set(Fault)
    assert all(night.stage in STAGES[night.fault] for night in plan if night.fault)
    assert sorted(map(faults.count, Fault))[0] >= 1


def test_a_night_with_a_fault_has_something_to_do_and_the_next_one_none() -> None:
    for seed in range(20):
        plan = planned(31, seed)
        for before, night in itertools.pairwise(plan):
            assert night.data - before.data in (0, 1)
            if night.fault:
                assert night.data == before.data + 1
                assert before.fault is None
        assert any(night.data == before.data for before, night in itertools.pairwise(plan))


def test_the_plan_follows_from_the_seed_and_a_shorter_one_is_its_beginning() -> None:
    assert planned(30, 1) == planned(30, 1) != planned(30, 2)
    assert planned(7, 1) == planned(30, 1)[:7]


@pytest.mark.slow
def test_a_few_nights(tmp_path: Path) -> None:
    # By a process of its own, since it is a client of another server than the other tests' one.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, HERE / "drive_nights.py", "--short", "--folder", tmp_path],
        env=ours | {"PYTHONPATH": os.pathsep.join(map(str, (HERE.parent.parent, HERE.parent)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "nights.md").read_text()
    assert table in done.stdout
    flow, worker, raises, good = table.splitlines()[2:]
    assert "| flow process killed, in train | Completed; begun 2 times; train tried 2 times |" in flow
    assert "| worker killed, in train | Completed; begun 2 times" in worker
    assert "raised by the plan of the nights" in raises
    assert "| none | Completed |" in good
    assert good.endswith("| convert, validate, train |")
