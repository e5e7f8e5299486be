"""Rows, turns and child processes: what every benchmark is made of. Nothing here is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import podline
from benchmarks import accuracy, run
from benchmarks.child import measure
from benchmarks.row import cost_row, rate_row
from benchmarks.timing import in_turns
from podline.commands.benchmark import benchmark
from podline.errors import PodlineError, SettingsError
from podline.intervals import Z
from podline.progress import Event
from podline.strategies import accelerators


def test_a_row_has_medians_and_a_ratio_that_is_larger_the_better() -> None:
    row = rate_row("pass", count=100, ours=[9, 1, 2], other=[10, 8, 50], unit="images/s", note="")
    assert (row.ours, row.other, row.ratio) == (50, 10, 5)
    row = cost_row("pass", ours=[2, 4], other=[6, 6, 100], unit="s", note="")
    assert (row.ours, row.other, row.ratio) == (3, 6, 2)


def test_sides_take_turns_and_the_one_that_starts_alternates() -> None:
    calls: list[str] = []
    seconds = in_turns(lambda: calls.append("ours"), lambda: calls.append("other"), 3, before=lambda: calls.append("-"))
    assert "".join(name[:2] for name in calls) == "-ou-ot-ot-ou-ou-ot"
    assert len(seconds.ours) == len(seconds.other) == 3


def test_a_failed_child_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(PodlineError, match=r"(?s)json:loads ended with 1:.*JSONDecodeError: Expecting"):
        measure(tmp_path, "json:loads", s="{")


def test_an_unknown_benchmark_is_refused_before_anything_is_measured() -> None:
    events: list[Event] = []
    with pytest.raises(SettingsError, match=r"no benchmark 'write-shards'; did you mean 'write-shard'\?"):
        run(["train-step", "write-shards"], events.append)
    assert not events


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


def test_without_the_repository_a_comparison_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podline, "__file__", str(tmp_path / "site-packages" / "podline" / "__init__.py"))
    with pytest.raises(SettingsError, match=r"site-packages/benchmarks does not exist: .* `podline tune input`"):
        benchmark.main(["write-shard"], standalone_mode=False)


LABELS = np.array([0] * 8 + [1] * 2)


def test_each_class_counts_the_same() -> None:
    right = np.array([True] * 8 + [True, False])
    share = accuracy.macro(right, LABELS)
    assert share.value == pytest.approx(0.75)
    # The first class has no spread. Of the other's two examples one is right: each moves the mean by 0.5 / 2 / 2.
    assert share.high - share.value == pytest.approx(Z * np.sqrt(2 * 0.125**2 * 10 / 9))


def test_the_difference_is_from_the_best_script_by_the_same_examples() -> None:
    right, wrong = np.ones(10, bool), np.zeros(10, bool)
    ours, *scripts = accuracy.rows(
        {"recipe `images`": [(right, 10.0), (right, 20.0)], "worse": [(wrong, 1.0)], "better": [(LABELS == 0, 1.0)]},
        LABELS,
    )
    assert ours == "| recipe `images` | 100.0 % ± 0.0 | 100.0 to 100.0 | +50.0 [+50.0, +50.0] | 15 s |"
    assert scripts == [
        "| worse | 0.0 % ± 0.0 | 0.0 to 0.0 | -50.0 [-50.0, -50.0] | 1 s |",
        "| better | 50.0 % ± 0.0 | 50.0 to 50.0 |  | 1 s |",
    ]
