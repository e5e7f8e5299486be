"""Benchmarks run, compare medians of sides in turn, and give both sides the same work."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import podline
from benchmarks import conversion, plain, records
from benchmarks.child import measure
from benchmarks.readers import install_readers
from benchmarks.row import cost_row, rate_row
from benchmarks.running import run
from benchmarks.timing import in_turns
from podline.base.errors import PodlineError, SettingsError
from podline.base.progress import Event
from podline.commands.benchmark import benchmark


def test_a_row_has_medians_and_a_ratio_that_is_larger_the_better() -> None:
    row = rate_row("pass", {"ours": [9, 1, 2], "other": [10, 8, 50]}, 100, "")
    assert (row.ours, row.other, row.ratio) == (50, 10, 5)
    row = cost_row("pass", {"ours": [2, 4], "other": [6, 6, 100]}, "", "s")
    assert (row.ours, row.other, row.ratio) == (3, 6, 2)


def test_sides_take_turns_and_the_one_that_starts_alternates() -> None:
    calls = itertools.count()
    turns = in_turns({"ours": lambda: next(calls), "other": lambda: next(calls)}, 3)
    assert turns == {"ours": [0, 3, 4], "other": [1, 2, 5]}


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
    names = (
        "write-shard convert-job convert-job-memory convert-coco convert-folders pose-input shuffled-batches "
        "plans-order plans-order-memory plans-batch plans-files plans-files-memory train-step first-step"
    )
    assert " ".join(rows) == names
    assert all(row.ours > 0 and row.other > 0 and row.ratio > 0 for row in rows.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_readers_deliver_the_same_images(tmp_path: Path) -> None:
    try:
        rows = run(["readers"], lambda _event: None, quick=True, work=tmp_path)
    except SettingsError as error:
        pytest.skip(str(error))  # there is no package index
    assert {row.name for row in rows} == {"readers-tf.data", "readers-grain", "readers-webdataset"}
    assert all(row.ours > 0 and row.other > 0 for row in rows)


def test_readers_without_a_package_index_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    with pytest.raises(SettingsError, match=r"readers cannot install grain==.* from a package index: .+ leave") as told:
        install_readers(tmp_path / "env")
    assert "\n" not in str(told.value)


def test_without_the_repository_a_comparison_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podline, "__file__", str(tmp_path / "site-packages" / "podline" / "__init__.py"))
    with pytest.raises(SettingsError, match=r"site-packages/benchmarks does not exist, .* `podline tune input`"):
        benchmark.main(["write-shard"], standalone_mode=False)


@pytest.fixture
def both_files(tmp_path: Path) -> tuple[Path, Path]:
    columns = records.random_columns(50)
    ours, other = tmp_path / "ours.tfrecord", tmp_path / "plain.tfrecord"
    records.write_chunks(ours, records.cifar_layout(), columns)
    plain.write_shard(other, columns["image"], columns["label"])
    return ours, other


def test_both_writers_write_the_same_examples(both_files: tuple[Path, Path]) -> None:
    ours, other = (
        [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
        for file in both_files
    )
    assert ours == other
    assert len(ours) == 50


def test_the_plain_conversion_reads_every_row_as_an_image_of_interleaved_channels(tmp_path: Path) -> None:
    conversion.make_source(str(tmp_path / "raw"), 13)
    files = sorted((tmp_path / "raw").glob("*.bin"))
    rows = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
    (tmp_path / "target").mkdir()
    assert plain.convert(files, tmp_path / "target") == 13
    written = [str(tmp_path / "target" / f"{file.stem}.tfrecord") for file in files]
    examples = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(written)]
    assert [example.features.feature["label"].int64_list.value[0] for example in examples] == rows[:, 0].tolist()
    for example, row in zip(examples, rows, strict=True):
        [image] = example.features.feature["image"].bytes_list.value
        planes = row[1:].reshape(3, 32, 32)
        assert np.array_equal(np.frombuffer(image, np.uint8).reshape(32, 32, 3), np.stack(list(planes), axis=-1))
