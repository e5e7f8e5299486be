"""The plan of the nights, and a short form of them; see drive_nights.py, which is the long form."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from night_outcomes import Outcome, index_problems, problems
from night_plan import RED, STAGES, Day, Fault, Night, is_poor, planned

HERE = Path(__file__).resolve().parent


def test_every_second_night_of_thirty_has_a_fault_and_each_fault_comes() -> None:
    plan = planned(30, 0)
    faults = [night.fault for night in plan if night.fault]
    assert [night.number for night in plan if night.fault] == list(range(2, 31, 2))
    assert set(faults) == set(Fault)
    assert all(night.stage in STAGES[night.fault] for night in plan if night.fault)


def test_a_night_with_a_fault_has_something_to_do_and_the_next_one_makes_good() -> None:
    for seed in range(20):
        plan = planned(31, seed)
        for before, night in itertools.pairwise(plan):
            assert night.data - before.data in (0, 1)
            if night.fault:
                assert night.data == before.data + 1
                assert before.fault is None
            if before.fault in RED:
                assert night.data == before.data
        assert any(night.data == before.data for before, night in itertools.pairwise(plan))


def test_by_day_a_person_does_each_thing_more_than_once_and_some_data_are_poor() -> None:
    plan = planned(30, 0)
    days = Counter(night.day for night in plan)
    assert min(days[day] for day in Day) >= 2
    assert all(night.fault in RED for night in plan if night.day == Day.RETRY)
    poor = [night for night in plan if is_poor(night.data)]
    assert len({night.data for night in poor}) >= 3


def test_the_plan_follows_from_the_seed_and_a_shorter_one_is_its_beginning() -> None:
    assert planned(30, 1) == planned(30, 1) != planned(30, 2)
    assert planned(7, 1) == planned(30, 1)[:7]


GOOD = Outcome(
    Night(2, 1, Fault.FLOW, "train"),
    struck=True,
    state="Completed",
    message="",
    starts=2,
    put_back=1,
    crashed=1.0,
    again=9.0,
    minutes=1.0,
    begun=("convert", "train", "train"),
    done=("convert", "train"),
    figures={"weights": "a"},
)
RED_NIGHT = replace(
    GOOD,
    night=Night(2, 1, Fault.RAISES, "evaluate"),
    state="Failed",
    message="it was raised by the plan of the nights",
    figures={},
)


def test_a_night_that_is_as_it_should_be_is_no_problem() -> None:
    assert problems([GOOD, replace(RED_NIGHT, done=())], {1: {"weights": "a"}}) == []


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (replace(GOOD, struck=False), "night 2: flow process killed in train did nothing"),
        (replace(GOOD, starts=1, put_back=0), "night 2: flow process killed in train did nothing"),
        (replace(GOOD, put_back=2), "night 2: began 2 times, and was put back into the queue 2 times"),
        (replace(GOOD, figures={"weights": "b"}), "night 2: {'weights': 'b'} vs {'weights': 'a'} undisturbed"),
        (replace(GOOD, done=("train", "train")), "train of data 1 was done 2 times"),
        (replace(GOOD, figures={}, state="Crashed", message="gone"), "night 2: ended Crashed: gone"),
        (replace(RED_NIGHT, message="why?"), "night 2: does not say 'raised by the plan of the nights': why?"),
        (replace(RED_NIGHT, figures={"weights": "a"}), "night 2: evaluation raising in evaluate did nothing"),
    ],
)
def test_what_is_not_as_it_should_be_is_told(outcome: Outcome, problem: str) -> None:
    assert problems([outcome], {1: {"weights": "a"}}) == [problem]


def _index(*nights: str, others: str = "") -> str:
    """A page with rows, the newest first."""
    rows = [
        f'<tr role="row"><th role="rowheader">then</th><td>finished</td><span class="change {word}"></tr>'
        for word in nights
    ]
    return f'{"".join(rows)}<section id="others">{others}'


def test_an_index_with_a_drop_too_many_or_too_few_is_told() -> None:
    poor = replace(GOOD, night=Night(3, 4))
    by_hand = replace(GOOD, night=Night(1, 0, day=Day.HAND))
    began = '<td class="began">by hand</td>'
    outcomes = [by_hand, replace(RED_NIGHT, done=()), poor, replace(poor, night=Night(4, 4))]
    assert index_problems(_index("noise", "worse", "", others=began), outcomes) == []
    [missed] = index_problems(_index("noise", "noise", "", others=began), outcomes)
    assert missed.startswith("night 3 is a drop")
    [false_alarm] = index_problems(_index("worse", "worse", "", others=began), outcomes)
    assert false_alarm.startswith("night 4 is no drop")
    assert index_problems(_index("worse", "", others=began), outcomes)
    assert index_problems(_index("noise", "worse", ""), outcomes) == [
        "the index has 0 runs by hand vs 1 that there were"
    ]
    alarm = f'{began}<span class="change worse">'
    assert len(index_problems(_index("noise", "worse", "", others=alarm), outcomes)) == 1
    retried = replace(RED_NIGHT, night=Night(2, 4, Fault.RAISES, "evaluate", Day.RETRY))
    worse = '<td class="began">retry of a night</td><span class="change worse">'
    later = [GOOD, retried, poor]
    assert index_problems(_index("worse", "", others=worse), later) == []
    assert len(index_problems(_index("worse", ""), later)) == 2


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
    flow, raises, worker, poor = table.splitlines()[2:]
    assert "| flow process killed, in train | Crashed after " in flow
    assert "train begun 2 times; Completed |" in flow
    assert "Failed: " in raises
    assert "raised by the plan of the nights" in raises
    assert "| worker killed, in evaluate | Crashed after " in worker
    assert worker.endswith("| convert, validate, train |")
    assert "Completed" in poor
    assert "change worse" in (tmp_path / "index.html").read_text()
