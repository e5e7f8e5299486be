"""A run's files lose nothing and take nothing foreign: what is saved is restored bit for bit or passed over by name."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from pathlib import Path
from unittest.mock import Mock

import fault_proxy
import numpy as np
import pytest
from waiting import wait_until

from podline.base.errors import (
    ArtifactError,
    OtherWriterError,
    PreemptedError,
    PrunedError,
    StoreError,
    StoreUnavailableError,
)
from podline.base.progress import Reporter
from podline.documents.log_writers import EventLog, LogMark, MetricsLog
from podline.documents.metrics_log import EVENTS, METRICS, MetricsLines
from podline.store import fences
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import Writer
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder, TimeSpent, read_arrays, restore_newest, write_arrays
from podline.training.mirror import Mirror
from podline.training.train import _copy_open_files, _noted
from tests.support.metrics import evaluation_line, read_metrics, steps_line


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


EVALUATION = evaluation_line(4, 1.0, accuracy=0.3)


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


def test_the_early_end_of_a_run_is_an_event_for_errors_of_a_package_too(tmp_path: Path) -> None:
    class EnoughError(PrunedError):
        """As a hook of a package raises it."""

    events = EventLog(tmp_path / EVENTS)
    with pytest.raises(EnoughError), _noted(Mock(), events, Mock(step=7)):
        raise EnoughError("no gain")
    [event] = events.read()
    assert (event.event, event.step, event.message) == ("pruned", 7, "no gain")


RUN = "runs/r"


@pytest.fixture
def bucket(gcs_root: str) -> Store:
    return open_store(gcs_root)


@pytest.fixture
def proxy(proxy: fault_proxy.FaultProxy, monkeypatch: pytest.MonkeyPatch) -> fault_proxy.FaultProxy:
    monkeypatch.setenv("PODLINE_STORE_DEADLINE", "1")
    proxy.faults = ("503",)
    return proxy


def reporter(said: list[str] | None = None) -> Reporter:
    return Reporter("train", lambda event: said.append(event.get("message", "")) if said is not None else None)


def train(mirror: Mirror, *steps: int) -> int:
    """Goes on from what there is, then saves at each step; where it went on from."""
    folder = CheckpointFolder(mirror.near, RUN, "a" * 64)
    EventLog(mirror.near.local(f"{RUN}/events.jsonl")).write("started", 0, "again")
    with MetricsLog(mirror.near.local(f"{RUN}/metrics.jsonl")) as log:
        found = restore_newest(folder, log, lambda arrays: None, lambda step, why: pytest.fail(why))
        for step in steps:
            log.write(steps_line(step, float(step)))
            folder.save(step, {"x": np.full(1000, step)}, log.mark(), TimeSpent())
    return found.step if found else 0


def steps_in(bucket: Store) -> list[int]:
    return CheckpointFolder(bucket, RUN, "").steps()


def test_what_is_written_is_in_the_store_while_the_run_goes_on_and_all_of_it_at_the_end(bucket: Store) -> None:
    with Mirror(bucket, RUN, 60, reporter()) as mirror:
        train(mirror, 10, 20)
        wait_until(lambda: steps_in(bucket) == [20, 10])
        train(mirror, 30, 40)
        mirror.near.publish_json(f"{RUN}/stages/train.json", {})
    assert steps_in(bucket) == [40, 30, 20]
    assert bucket.exists(f"{RUN}/stages/train.json")
    assert [line.step for line in read_metrics(bucket.local(f"{RUN}/metrics.jsonl"))] == [10, 20, 30, 40]
    assert not mirror.near.local(RUN).exists()


def test_training_goes_on_through_an_outage_and_the_store_catches_up(
    proxy: fault_proxy.FaultProxy, gcs_root: str
) -> None:
    said, store = [], open_store(gcs_root)
    with Mirror(store, RUN, 60, reporter(said)) as mirror:
        train(mirror, 10)
        wait_until(lambda: steps_in(store) == [10])
        proxy.share = 1.0
        train(mirror, 20)
        wait_until(lambda: any("training goes on" in message for message in said))
        train(mirror, 30)
        assert not mirror.lost
        proxy.share = 0.0
    assert any("is back" in message for message in said)
    assert steps_in(store) == [30, 20, 10]


def test_a_store_that_stays_away_ends_the_run_and_the_next_start_goes_on_from_here(
    proxy: fault_proxy.FaultProxy, gcs_root: str
) -> None:
    store = open_store(gcs_root)
    with (  # noqa: PT012 (the run's end is what raises)
        pytest.raises(StoreUnavailableError, match=r"is kept in .*runs/r; run the same command") as caught,
        Mirror(store, RUN, 0, reporter()) as mirror,
    ):
        train(mirror, 10)
        proxy.share = 1.0
        train(mirror, 20)
        wait_until(lambda: mirror.lost)
        raise PreemptedError("asked to end")
    assert isinstance(caught.value.__cause__, PreemptedError)
    proxy.share = 0.0
    with Mirror(store, RUN, 60, reporter()) as mirror:
        assert train(mirror, 30) == 20
    assert steps_in(store) == [30, 20, 10]


def test_a_killed_run_goes_on_from_the_side_that_is_ahead(bucket: Store) -> None:
    ahead = Mirror(bucket, RUN, 60, reporter())
    ahead.near.local(RUN).mkdir(parents=True)
    train(ahead, 10, 20)  # killed before anything was brought
    with Mirror(bucket, RUN, 60, reporter()) as mirror:
        assert train(mirror) == 20
    train(ahead, 10)  # an old one, left on this machine
    with Mirror(bucket, RUN, 60, reporter()) as mirror:
        assert train(mirror) == 20
    assert steps_in(bucket) == [20, 10]


def test_lines_of_a_former_writer_do_not_reach_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "0.3")
    store = FolderStore(tmp_path / "root")
    first, second = (Writer(store, RUN, name) for name in ("first", "second"))
    first.take(tmp_path / "first.owner", lambda holder: None)
    events = EventLog(store.local(f"{RUN}/{EVENTS}"), first.require)
    events.write("started", 0, "first")
    with MetricsLog(store.local(f"{RUN}/{METRICS}")) as log:
        log.write(steps_line(1, 1.0))
        second.take(tmp_path / "second.owner", lambda holder: None)
        with fences.put(store.uri, RUN, second):
            _copy_open_files(store, RUN)
        before = {name: store.read_bytes(f"{RUN}/{name}") for name in (METRICS, EVENTS)}
        log.write(steps_line(2, 2.0))
        with pytest.raises(OtherWriterError):
            events.write("preempted", 2, "too late")
    assert {name: store.read_bytes(f"{RUN}/{name}") for name in before} == before
    assert before[METRICS].count(b"\n") == before[EVENTS].count(b"\n") == 1
