"""One misbehaving item costs a child, never the caller or its neighbours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from podline.data.sandbox.limits import Breach, Limits
from podline.data.sandbox.pool import Sandbox, confined
from podline.errors import ChildKilledError, SettingsError, SourceError

SMALL = Limits(50_000_000, 0.2, wait=0.5)
# CPU time comes slowly on a busy machine.
PATIENT = Limits(50_000_000, 0.2, wait=120.0)


pytestmark = pytest.mark.usefixtures("in_children")


@pytest.fixture(name="box")
def _box(in_children: None) -> Iterator[Sandbox]:
    with Sandbox("sandbox_cases:parser", 100) as box:
        yield box


def parsed(box: Sandbox, *items: object) -> list[object]:
    return box.map(items, SMALL, "items")


def test_items_are_answered_in_order_whatever_a_library_prints(box: Sandbox) -> None:
    assert parsed(box, 1, "print", 2) == [101, "said", 102]
    assert parsed(box) == []


@pytest.mark.parametrize(
    ("item", "word", "limited"),
    [
        ([1_000], "MB of memory", True),
        (30.0, "CPU time", True),
        ("crash", "SIGSEGV", False),
        ("exit", "exit code 3", False),
        ("wrapped", "MB of memory", True),
        ("aborted", "MB of memory", True),
    ],
)
def test_an_item_that_misbehaves_is_named_and_its_neighbours_are_answered(
    box: Sandbox, item: object, word: str, limited: bool
) -> None:
    before, breach, after = box.map([1, item, 2], PATIENT, "items")
    assert (before, after) == (101, 102)
    assert isinstance(breach, Breach)
    assert word in breach.reason
    assert breach.limited is limited


def test_an_item_slightly_above_its_limits_is_answered_at_the_second_try(box: Sandbox) -> None:
    assert box.map([1, [100], 0.5, 2], PATIENT, "items") == [101, 100_000_000, 0.5, 102]


def test_an_item_that_hangs_without_cpu_time_is_ended_by_the_clock(box: Sandbox) -> None:
    breach, after = parsed(box, "sleep", 1)
    assert isinstance(breach, Breach)
    assert "CPU" not in breach.reason
    assert after == 101


def test_memory_of_earlier_items_does_not_count(box: Sandbox) -> None:
    assert parsed(box, *[[40]] * 10) == [40_000_000] * 10


def test_a_child_names_the_file_that_it_reads_and_sets_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"^b\.csv takes more than 40 MB of memory"):  # four times, at the second try
        confined("sandbox_cases:begun", 100, what="a.csv", limits=Limits(10**9, 60.0))
    with pytest.raises(SourceError, match=r"^b\.csv takes more than 0\.4 s of CPU time"):
        confined("sandbox_cases:begun", 30.0, what="a.csv", limits=Limits(10**9, 60.0))
    monkeypatch.setenv("PODLINE_PARSE_LIMITS", "20")
    assert confined("sandbox_cases:begun", 100, what="a.csv", limits=Limits(10**9, 60.0)) == 100_000_000


def test_errors_of_the_parser_reach_the_caller(box: Sandbox) -> None:
    with pytest.raises(SettingsError, match="side=33"):
        parsed(box, "settings")
    with pytest.raises(OSError, match="No space left") as full:
        parsed(box, "full")
    assert full.value.filename == "/somewhere/file"
    with pytest.raises(SourceError, match="bad magic"):
        parsed(box, "value")
    with pytest.raises(SourceError, match=r"out of memory\.csv has no labels"):  # the name of a file decides nothing
        parsed(box, "named")
    assert parsed(box, 5) == [105]


def test_limits_of_the_machine_bound_those_of_a_child() -> None:
    code = """
from podline.data.sandbox.limits import Limits
from podline.data.sandbox.pool import Sandbox
with Sandbox("sandbox_cases:parser", 100) as box:
    print(box.map([1], Limits(1 << 40, 0.2), "items"))
"""
    command = ["bash", "-c", f'ulimit -d 4000000; exec {sys.executable} -c "$0"', code]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "[101]\n"


def test_one_call_in_a_child_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert confined("sandbox_cases:total", 2, 3, what="a.csv", limits=SMALL) == 5
    with pytest.raises(SourceError, match=r"a\.csv.*memory.*parse_limits"):
        confined("sandbox_cases:grow", 300, what="a.csv", limits=SMALL)
    monkeypatch.setenv("PODLINE_PARSE_LIMITS", "100")
    assert confined("sandbox_cases:grow", 300, what="a.csv", limits=SMALL) == 300_000_000


def test_a_child_that_cannot_start_or_is_killed_as_it_starts_is_an_error() -> None:
    with Sandbox("podline.no_such_module:parser") as box, pytest.raises(SourceError, match="no_such_module"):
        box.map([1], SMALL, "items")
    with Sandbox("signal:raise_signal", 9) as box, pytest.raises(ChildKilledError, match="SIGKILL"):
        box.map([1], SMALL, "items")
