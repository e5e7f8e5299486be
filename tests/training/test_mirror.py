"""A run's files lose nothing and take nothing foreign: whoever goes away, or has its folder taken over."""

from __future__ import annotations

import time
from pathlib import Path

import fault_proxy
import numpy as np
import pytest

from podline.base.errors import OtherWriterError, PreemptedError, StoreUnavailableError
from podline.base.progress import Reporter
from podline.documents.metrics_log import EVENTS, METRICS, EventLog, MetricsLog
from podline.store import fences
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import Writer
from podline.store.opening import open_store
from podline.training.checkpoints import CheckpointFolder, TimeSpent, restore_newest
from podline.training.mirror import Mirror, mirrored
from podline.training.train import _copy_open_files
from tests.support.metrics import read_metrics, steps_line

RUN = "runs/r"


@pytest.fixture
def store(gcs_root: str) -> Store:
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


def steps_in(store: Store) -> list[int]:
    return CheckpointFolder(store, RUN, "").steps()


def until(condition, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_written_is_in_the_store_while_the_run_goes_on_and_all_of_it_at_the_end(store: Store) -> None:
    with mirrored(store, RUN, 60, reporter()) as mirror:
        train(mirror, 10, 20)
        until(lambda: steps_in(store) == [20, 10])
        train(mirror, 30, 40)
        mirror.near.publish_json(f"{RUN}/stages/train.json", {})
    assert steps_in(store) == [40, 30, 20]
    assert store.exists(f"{RUN}/stages/train.json")
    assert [line.step for line in read_metrics(store.local(f"{RUN}/metrics.jsonl"))] == [10, 20, 30, 40]
    assert not mirror.near.local(RUN).exists()


def test_training_goes_on_through_an_outage_and_the_store_catches_up(
    proxy: fault_proxy.FaultProxy, gcs_root: str
) -> None:
    said, store = [], open_store(gcs_root)
    with mirrored(store, RUN, 60, reporter(said)) as mirror:
        train(mirror, 10)
        until(lambda: steps_in(store) == [10])
        proxy.share = 1.0
        train(mirror, 20)
        until(lambda: any("training goes on" in message for message in said))
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
        pytest.raises(StoreUnavailableError, match=r"is kept in .*runs/r, and the same command") as caught,
        mirrored(store, RUN, 0, reporter()) as mirror,
    ):
        train(mirror, 10)
        proxy.share = 1.0
        train(mirror, 20)
        until(lambda: mirror.lost)
        raise PreemptedError("asked to end")
    assert isinstance(caught.value.__cause__, PreemptedError)
    proxy.share = 0.0
    with mirrored(store, RUN, 60, reporter()) as mirror:
        assert train(mirror, 30) == 20
    assert steps_in(store) == [30, 20, 10]


def test_a_killed_run_goes_on_from_the_side_that_is_ahead(store: Store) -> None:
    ahead = Mirror(store, RUN, 60, reporter())
    ahead.near.local(RUN).mkdir(parents=True)
    train(ahead, 10, 20)  # killed before anything was brought
    with mirrored(store, RUN, 60, reporter()) as mirror:
        assert train(mirror) == 20
    train(ahead, 10)  # an old one, left on this machine
    with mirrored(store, RUN, 60, reporter()) as mirror:
        assert train(mirror) == 20
    assert steps_in(store) == [20, 10]


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
