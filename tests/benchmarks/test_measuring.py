"""Rows, turns and child processes: what every benchmark is made of. Nothing here is timed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import podline
from benchmarks import BENCHMARKS, catalogue, run
from benchmarks.child import measure
from benchmarks.row import cost_row, rate_row
from benchmarks.timing import in_turns
from podline.commands.benchmark import benchmark
from podline.errors import PodlineError, SettingsError, StoreError
from podline.progress import Event
from podline.strategies import accelerators
from podline.supervision import processes


def test_a_rate_is_of_the_median_and_more_is_better() -> None:
    row = rate_row("pass", count=100, ours=[9, 1, 2], other=[10, 8, 50], unit="images/s", note="")
    assert (row.ours, row.other, row.ratio) == (50, 10, 5)


def test_less_cost_is_better() -> None:
    row = cost_row("pass", ours=[2, 4], other=[6, 6, 100], unit="s", note="")
    assert (row.ours, row.other, row.ratio) == (3, 6, 2)


def test_sides_take_turns_and_the_one_that_starts_alternates() -> None:
    calls: list[str] = []
    seconds = in_turns(lambda: calls.append("ours"), lambda: calls.append("other"), 3, before=lambda: calls.append("-"))
    assert "".join(name[:2] for name in calls) == "-ou-ot-ot-ou-ou-ot"
    assert len(seconds.ours) == len(seconds.other) == 3


def test_a_child_answers_with_what_its_function_returns(tmp_path: Path) -> None:
    assert measure(tmp_path, "json:dumps", obj={"a": [1, 2]}) == '{"a": [1, 2]}'


def test_what_a_child_prints_is_not_its_answer(tmp_path: Path) -> None:
    assert measure(tmp_path, "builtins:print", end="noise") is None


def test_what_a_child_leaves_in_the_temporary_folder_goes_with_its_work(tmp_path: Path) -> None:
    assert Path(measure(tmp_path, "tempfile:gettempdir")).is_relative_to(tmp_path)


def test_a_failed_child_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(PodlineError, match=r"(?s)json:loads ended with 1:.*JSONDecodeError: Expecting"):
        measure(tmp_path, "json:loads", s="{")


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    statement = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(100)"
    code = (
        "import pathlib; from benchmarks.child import measure;"
        f"measure(pathlib.Path({str(tmp_path)!r}), 'timeit:timeit', stmt={statement!r}, number=1)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        _until(lambda: note.exists() and note.read_text())
        child = int(note.read_text())
        parent.send_signal(signal.SIGKILL)
    _until(lambda: not _alive(child))


def _until(true: object, seconds: float = 240) -> None:
    """Waits until something holds; the time is what an overloaded machine may need, not a measure."""
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    return processes.parent(process) is not None


def test_an_unknown_benchmark_is_refused_before_anything_is_measured() -> None:
    events: list[Event] = []
    with pytest.raises(SettingsError, match=r"no benchmark 'write-shards'; did you mean 'write-shard'\?"):
        run(["train-step", "write-shards"], events.append)
    assert not events


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(SettingsError, match="examples=5"):
        run(["convert-job"], lambda _event: None, examples=5)


def test_a_work_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write to"):
        run(["write-shard"], lambda _event: None, work=tmp_path / "absent")


def test_benchmarks_can_be_listed_without_tensorflow_or_beam() -> None:
    code = "import sys, benchmarks as b; print(len(b.BENCHMARKS), {'tensorflow', 'apache_beam'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(BENCHMARKS)), "set()"]


@pytest.mark.slow
def test_a_quick_run_tells_its_rows_and_leaves_no_file(tmp_path: Path) -> None:
    events: list[Event] = []
    [row] = run(["write-shard"], events.append, quick=True, work=tmp_path)
    assert row.name == "write-shard"
    assert row.ratio == pytest.approx(row.ours / row.other)
    assert "256 CIFAR-10 records" in row.note
    assert [event["done"] for event in events if event["event"] == "progress"] == [0, 1]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_benchmark_runs_in_its_quick_form(tmp_path: Path) -> None:
    rows = {row.name: row for row in run(None, lambda _event: None, quick=True, work=tmp_path)}
    assert list(rows) == [
        "write-shard",
        "convert-job",
        "convert-job-memory",
        "convert-coco",
        "pose-input",
        "shuffled-batches",
        "train-step",
        "first-step",
    ]
    assert all(row.ours > 0 and row.other > 0 and row.ratio > 0 for row in rows.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(bool(accelerators()), reason="there is an accelerator here")
def test_channels_first_is_refused_by_name_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="channels-first needs a GPU; got none"):
        run(["channels-first"], lambda _event: None, quick=True, work=tmp_path)


@pytest.mark.slow
def test_two_layouts_are_measured_in_turns(tmp_path: Path) -> None:
    """On a CPU both sides have the one layout that it can compute; what a GPU changes is the values alone."""
    took = measure(
        tmp_path,
        "benchmarks.training:layout_steps",
        **catalogue.data_set(tmp_path, 80),
        batch_size=8,
        steps=1,
        repetitions=2,
        layouts=("channels_last", "channels_last"),
        strategy="cpu",
    )
    assert [len(took[side]) for side in ("ours", "other")] == [2, 2]


def test_without_the_repository_a_comparison_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podline, "__file__", str(tmp_path / "site-packages" / "podline" / "__init__.py"))
    with pytest.raises(SettingsError, match=r"site-packages/benchmarks does not exist: .* `podline tune input`"):
        benchmark.main(["write-shard"], standalone_mode=False)
