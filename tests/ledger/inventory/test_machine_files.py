"""What is left on this machine: old lock files, logs, and runs never uploaded; a repeated training begins anew."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_dataset import FINGERPRINT, small_recipe

from podline.base.errors import OtherWriterError
from podline.base.progress import beside
from podline.ledger.inventory.invalidation import forget
from podline.stages.specs import TrainSpec
from podline.store import locks
from podline.store.contract import Store
from podline.store.folder import mirror_of
from podline.store.one_writer import Writer
from podline.store.opening import open_store

Podline = Callable[..., Any]


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, podline: Podline) -> Store:
    del podline  # it takes settings from the environment
    store = open_store(tmp_path / "root" if request.param == "folder" else request.getfixturevalue("gcs_root"))
    store.publish_bytes("ledger/any", b"x")
    return store


def aged(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    os.utime(path, times=(time.time() - 86_400 * days,) * 2)
    return path


def test_old_lock_files_logs_and_mirrors_go_but_for_those_in_use(store: Store, podline: Podline) -> None:
    scratch, run = store.own_folder("locks").parent, "runs/sample-0123456789ab"
    store.own_folder("uses")
    old = [aged(scratch / name, 8) for name in ("locks/a.lock", "locks/b.lock", "uses/c.lock", "logs/train-0.log")]
    young = [aged(scratch / "locks" / "d.lock", 1), aged(scratch / "mirror" / "runs" / "sample-ba9876543210" / "x", 1)]
    failed = aged(scratch / "mirror" / run / "checkpoints" / "step-00000010.npz", 8)
    with store.using([run]):
        kept = podline("store", "prune", "--yes", "--root", store.uri).out
    assert f"{failed.parents[1]} stays: a living process uses it" in kept
    assert not any(path.exists() for path in old)
    with locks.locked(aged(old[0], 8)):
        for options in ((), ("--yes",)):
            out = podline("store", "prune", *options, "--json", "--root", store.uri).out
            assert {held["folder"] for held in json.loads(out)["holdings"]} == {
                str(scratch / "locks"),
                str(failed.parents[1]),
            }
            assert old[0].exists()
            assert failed.exists() == (not options)
            assert all(path.exists() for path in young)


def test_a_training_that_begins_anew_forgets_both_sides_but_not_while_it_is_trained(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_STORE_LEASE", "0.6")
    spec = TrainSpec(root=store.uri, recipe=small_recipe(), fingerprint=FINGERPRINT)
    far, near = f"{spec.folder}/checkpoints/step-00000010.npz", mirror_of(store)
    store.publish_bytes(far, b"x")
    near.publish_bytes(f"{spec.folder}/checkpoints/step-00000020.npz", b"x")
    night = Writer(store, spec.folder, "the night on another machine")
    night.take(tmp_path / "night.owner", lambda holder: None)
    with beside(night.keep, 0.1, "lease"), pytest.raises(OtherWriterError, match="end it or wait for it: the night"):
        forget(spec)
    night.give_back()
    assert store.list("runs") == [far]
    forget(spec)
    assert store.list("runs") == near.list() == []
