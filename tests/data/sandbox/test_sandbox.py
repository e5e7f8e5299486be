"""One misbehaving item costs a child, never the caller or its neighbours."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_cases import begun

from podline.base.errors import ChildKilledError, SettingsError, SourceError
from podline.data.sandbox.limits import Breach, ParseLimits
from podline.data.sandbox.pool import Sandbox, confined

SMALL = ParseLimits(50_000_000, 0.2, wait=0.5)
# CPU time comes slowly on a busy machine.
PATIENT = ParseLimits(50_000_000, 0.2, wait=120.0)


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
        ("noisy", "MB of memory", True),
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
    items = [1, [100], 0.5, *[[40]] * 10]  # memory of earlier items does not count
    assert box.map(items, PATIENT, "items") == [101, 100_000_000, 0.5, *[40_000_000] * 10]


def test_an_item_that_hangs_without_cpu_time_is_ended_by_the_clock(box: Sandbox) -> None:
    breach, after = parsed(box, "sleep", 1)
    assert isinstance(breach, Breach)
    assert "CPU" not in breach.reason
    assert after == 101


def test_a_child_names_the_file_that_it_reads_and_sets_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"^b\.csv takes more than 40 MB of memory"):  # four times, at the second try
        confined(begun, 100, what="a.csv", limits=ParseLimits(10**9, 60.0))
    with pytest.raises(SourceError, match=r"^b\.csv takes more than 0\.4 s of CPU time"):
        confined(begun, 30.0, what="a.csv", limits=ParseLimits(10**9, 60.0))
    monkeypatch.setenv("PODLINE_PARSE_LIMITS", "20")
    assert confined(begun, 100, what="a.csv", limits=ParseLimits(10**9, 60.0)) == 100_000_000


def test_errors_of_the_parser_reach_the_caller(box: Sandbox) -> None:
    with pytest.raises(SettingsError, match="side=33"):
        parsed(box, "settings")
    with pytest.raises(OSError, match="No space left") as full:
        parsed(box, "full")
    assert full.value.filename == "/somewhere/file"
    with pytest.raises(OSError, match=r"^cannot identify image file$"):
        parsed(box, "unidentified")
    with pytest.raises(SourceError, match="bad magic"):
        parsed(box, "value")
    with pytest.raises(SourceError, match=r"out of memory\.csv has no labels"):  # the name of a file decides nothing
        parsed(box, "named")
    assert parsed(box, 5) == [105]


_LOOK = """
import ctypes, json
for capability in range(64):  # of root's, the child gets none, as the child of an ordinary user
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import Sandbox
with Sandbox("sandbox_cases:parser", 100) as box:
    print(json.dumps(box.map(["surroundings", 1], ParseLimits(50_000_000, 60.0), "items")))
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="by Linux")
def test_a_child_has_no_credentials_no_network_and_no_way_to_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = ("GOOGLE_APPLICATION_CREDENTIALS", "AWS_SECRET_ACCESS_KEY", "PREFECT_API_AUTH_STRING", "MY_TOKEN")
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("PODLINE_TRACKING", "mlflow:http://user:secret@host")
    with (tmp_path / "private").open("w") as private:
        os.set_inheritable(private.fileno(), True)
        command = [sys.executable, "-c", _LOOK]
        done = subprocess.run(command, capture_output=True, text=True, check=True, close_fds=False)
    found, other = json.loads(done.stdout)
    assert other == 101
    assert not {*found["variables"]} & {*secrets}
    known = ("socket:", "/dev/null", f"{tempfile.gettempdir()}/#")  # requests, standard input, the log and replies
    assert [path for path in found["descriptors"].values() if not path.startswith(known)] == []
    assert len(found["descriptors"]) == 5
    assert found["network"] == ["EPERM"] * 6
    assert found["in a thread"] == "EPERM"
    assert found["parent"] == ["EACCES"] * 2
    assert found["program"] == "EACCES"


@pytest.mark.parametrize("limit", ["-d 500000", "-S -v 1200000"])
def test_a_lower_limit_of_the_user_is_named_and_bounds_those_of_a_child(limit: str) -> None:
    code = """
from podline.data.sandbox.limits import ParseLimits
from podline.data.sandbox.pool import Sandbox
with Sandbox("sandbox_cases:parser", 100) as box:
    print(box.map([1, [2_000]], ParseLimits(1 << 40, 60.0), "items"))
"""
    command = ["bash", "-c", f'ulimit {limit}; exec {sys.executable} -c "$0"', code]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    megabytes = int(limit.rsplit(maxsplit=1)[-1]) * 1024 / 1e6
    expected = f"takes more than 4,398,047 MB or the {megabytes:,.0f} MB of `ulimit -v` or `-d` of memory"
    assert said.stdout.startswith(f"[101, Breach(reason='{expected}', limited=True"), said


def test_a_child_that_is_killed_from_outside_is_a_transient_error() -> None:
    with pytest.raises(ChildKilledError, match=r"reads a\.csv was killed from outside; .* more memory, or leave out"):
        confined(signal.raise_signal, 9, what="a.csv", limits=SMALL)


def test_a_child_that_cannot_start_or_is_killed_as_it_starts_is_an_error() -> None:
    with Sandbox("podline.no_such_module:parser") as box, pytest.raises(SourceError, match="no_such_module"):
        box.map([1], SMALL, "items")
    with Sandbox("signal:raise_signal", 9) as box, pytest.raises(ChildKilledError, match="SIGKILL"):
        box.map([1], SMALL, "items")
