"""Processes that train together name the cause that came first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from podline.base.errors import ChildKilledError, PodlineError, PreemptedError, SettingsError, WorkerLostError
from podline.settings.cluster import Cluster
from podline.stages import first_cause
from podline.stages.first_cause import forget_causes, tell_cause
from podline.store.opening import open_store

ADDRESSES = ("a:1", "b:2")
CHIEF, OTHER = (Cluster(addresses=ADDRESSES, place=place) for place in range(2))
LOST = WorkerLostError("another worker has ended")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ChildKilledError("train: killed by SIGKILL\nmore"), WorkerLostError, "train: killed by SIGKILL"),
        (SettingsError("no such recipe"), SettingsError, "no such recipe"),
    ],
)
def test_the_one_that_fails_tells_the_others_why(
    tmp_path: Path, error: PodlineError, kind: type[PodlineError], message: str
):
    store = open_store(tmp_path)
    tell_cause(store, "runs/r", OTHER, error)
    cause = first_cause.first_cause(store, "runs/r", CHIEF, LOST)
    assert (type(cause), str(cause)) == (kind, f"worker 1 (b:2) ended first: {message}")


def test_a_loss_that_nobody_explains_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(first_cause, "_SECONDS", 0.3)
    store = open_store(tmp_path)
    for error in (LOST, PreemptedError("asked to end")):
        tell_cause(store, "runs/r", OTHER, error)
    assert first_cause.first_cause(store, "runs/r", CHIEF, LOST) is LOST


def test_what_an_earlier_start_said_is_forgotten(tmp_path: Path):
    store = open_store(tmp_path)
    for cluster in (CHIEF, OTHER):
        tell_cause(store, "runs/r", cluster, ChildKilledError("killed"))
    forget_causes(store, "runs/r", CHIEF)
    assert store.list("runs/r") == ["runs/r/hosts/1.json"]  # it may be of this start
    old = time.time() - 60
    os.utime(tmp_path / "runs/r/hosts/1.json", (old, old))
    forget_causes(store, "runs/r", CHIEF)
    assert store.list("runs/r") == []
