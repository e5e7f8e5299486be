"""A checkpoint is restored bit for bit with the log that goes with it, or passed over by name."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from podline.base.errors import ArtifactError, StoreError
from podline.documents.metrics_log import EvaluationLine, LogMark, MetricsLines, MetricsLog
from podline.store.contract import Store
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder, TimeSpent, read_arrays, restore_newest, write_arrays
from tests.support.metrics import read_metrics, steps_line


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def log(tmp_path: Path):
    with MetricsLog(tmp_path / "runs" / "r" / "metrics.jsonl") as log:
        yield log


@pytest.fixture
def folder(store: Store) -> CheckpointFolder:
    return CheckpointFolder(store, "runs/r", "a" * 64)


def state(step: int) -> dict[str, np.ndarray]:
    return {"model/kernel": np.full((2, 3), step, np.float32), "optimizer/iteration": np.array(step, np.int64)}


def save(folder: CheckpointFolder, log: MetricsLog, *steps: int) -> None:
    for step in steps:
        log.write(steps_line(step, float(step)))
        folder.save(step, state(step), log.mark(), TimeSpent(wall=step, training=step / 2))


def restore(folder: CheckpointFolder, log: MetricsLog):
    """The step that was restored, or None, its arrays, and what was passed over."""
    arrays, passed = {}, []
    checkpoint = restore_newest(folder, log, arrays.update, lambda step, why: passed.append((step, why)))
    return checkpoint and checkpoint.step, arrays, passed


def names(folder: CheckpointFolder, store: Store) -> list[str]:
    return [name.removeprefix(f"{folder.folder}/") for name in store.list(folder.folder)]


def step_files(*steps: int) -> list[str]:
    return sorted(f"step-{step:08d}.{kind}" for step in steps for kind in ("json", "npz"))


def test_arrays_come_back_bit_for_bit_and_their_file_depends_on_nothing_else(store: Store):
    arrays = {
        "model/a/kernel": np.array([[0.1, -0.0], [np.nan, np.inf]], np.float32),
        "model/seed": np.array([7, 9], np.uint32),
        "scalar": np.array(3, np.int64),
    }
    size, sha256 = write_arrays(store, "x.npz", arrays)
    found = read_arrays(store, "x.npz", sha256)
    facts = [
        [(name, each.dtype, each.shape, each.tobytes()) for name, each in side.items()] for side in (found, arrays)
    ]
    assert facts[0] == facts[1]
    assert write_arrays(store, "again.npz", arrays) == (size, sha256)
    with pytest.raises(ArtifactError, match=r"x\.npz has sha256 .* vs 0000"):
        read_arrays(store, "x.npz", "0" * 64)
    assert store.local("x.npz").stat().st_size == size


def test_the_newest_checkpoint_is_restored_and_the_log_cut_back_to_it(folder, log):
    save(folder, log, 10, 20)
    log.write(steps_line(30, 30.0))
    step, arrays, passed = restore(folder, log)
    assert (step, folder.describe(step).clock, passed) == (20, TimeSpent(wall=20, training=10), [])
    assert arrays["model/kernel"].tolist() == state(20)["model/kernel"].tolist()
    assert log.path.read_bytes().count(b"\n") == 2


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "suffix", "reason"),
    [
        (flip, "npz", r"step-00000020\.npz has sha256 .* vs .* when it was written"),
        (Path.unlink, "npz", r"step-00000020\.npz is gone"),
        (lambda path: path.write_text("{}"), "json", r"step-00000020\.json has no document_sha256"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_by_name_and_gone(folder, log, store, damage, suffix, reason):
    save(folder, log, 10, 20)
    damage(store.local(f"{folder.folder}/step-00000020.{suffix}"))
    step, arrays, [(passed, why)] = restore(folder, log)
    assert (step, passed, arrays["optimizer/iteration"]) == (10, 20, 10)
    assert re.search(reason, why)
    assert names(folder, store) == step_files(10)
    assert log.path.read_bytes().count(b"\n") == 1


def test_a_checkpoint_of_another_spec_or_without_its_metrics_is_passed_over(folder, log, store):
    save(folder, log, 10)
    step, _, [(_, why)] = restore(CheckpointFolder(store, "runs/r", "b" * 64), log)
    assert (step, "the spec aaaaaaaaaaaa, expected bbbbbbbbbbbb" in why) == (None, True), why
    save(folder, log, 10)
    log.path.write_bytes(b"")
    step, _, [(_, why)] = restore(folder, log)
    assert (step, "metrics.jsonl no longer begins with" in why) == (None, True), why


def test_a_save_that_was_broken_off_is_not_seen_and_cleared_away(folder, log, store):
    rehearsed = f"{folder.folder}/preflight.npz"
    store.publish_bytes(rehearsed, b"being written", replace=True)
    save(folder, log, 10)
    assert store.exists(rehearsed), "a rehearsal beside a training keeps its file"
    store.delete(rehearsed)
    write_arrays(store, f"{folder.folder}/step-00000020.npz", state(20))  # killed before the JSON was published
    step, _, passed = restore(folder, log)
    assert (step, passed) == (10, [])
    assert names(folder, store) == step_files(10)


EVALUATION = EvaluationLine(
    step=4, epoch=0.4, split="test", examples=10, loss=1.0, accuracy=0.3, seconds=0.1, time=1_700_000_001.0
)


def test_a_line_without_its_end_is_no_line_and_a_wrong_one_is_named(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    good = json.dumps(EVALUATION.model_dump())
    path.write_text(good + "\n" + good[:-5])
    assert read_metrics(path) == [EVALUATION]
    path.write_text(good + '\n{"kind": "train"}\n')
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl:2 is not a line of metrics"):
        read_metrics(path)
    with pytest.raises(StoreError, match="cannot read"):
        read_metrics(tmp_path / "nothing.jsonl")


def test_a_log_of_any_length_is_read_in_little_memory(tmp_path: Path):
    path, steps = tmp_path / "metrics.jsonl", [steps_line(step, 1.0) for step in range(1, 20_001)]
    path.write_text("".join(f"{json.dumps(line.model_dump())}\n" for line in (*steps, EVALUATION)))
    size = path.stat().st_size
    mark = LogMark(bytes=size, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with MetricsLog(path) as log:
        tracemalloc.start()
        assert MetricsLines(path).rare() == [EVALUATION]
        some = [line.step for line in MetricsLines(path).steps(300)]
        assert sum(line.step for line in MetricsLines(path, last_step=100)) == 5050 + EVALUATION.step
        log.require(mark)
        log.cut(checked=True)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < size / 2, (most, size)
        assert log.mark() == mark
    assert some == [*range(1, 20_000, 67), 20_000]
