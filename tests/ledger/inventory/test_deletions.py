"""Deletions on links, foreign folders, wrong roots and this machine: nothing in use is lost; a refusal is one line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_dataset import FINGERPRINT, publish_dataset, small_recipe
from small_runs import publish_run

from podline.base.errors import OtherWriterError, SettingsError
from podline.base.progress import beside
from podline.documents.manifest import dataset_folder
from podline.ledger.inventory.invalidation import forget
from podline.ledger.inventory.inventory import holdings
from podline.stages.specs import TrainSpec
from podline.store import locks
from podline.store.contract import MARKER, Store
from podline.store.folder import mirror_of
from podline.store.one_writer import Writer
from podline.store.opening import open_store

DATASET, RUN = dataset_folder("sample", FINGERPRINT), "sample-0123456789ab"
RUN_FOLDER, BEGUN = f"runs/{RUN}", "runs/sample-ba9876543210"
DELETING = (
    ("store", "prune", "--days", "0", "--yes"),
    ("runs", "delete", "--days", "0", "--yes"),
    ("data", "forget", "sample", "--key", "cat/1.jpg", "--reason", "asked"),
)
Podline = Callable[..., Any]


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, podline: Podline, monkeypatch: pytest.MonkeyPatch) -> Store:
    del podline  # it takes settings from the environment
    monkeypatch.setattr("podline.commands.store._OTHERS_SECONDS", 0)
    return open_store(tmp_path / "root" if request.param == "folder" else request.getfixturevalue("gcs_root"))


def fill(store: Store) -> None:
    """A run with its data set, and one that broke off."""
    publish_dataset(store.uri)
    publish_run(store, RUN)
    store.publish_json(f"{BEGUN}/spec.json", {})


def test_a_store_of_1_0_is_marked_by_its_next_publication_and_keeps_all_before(store: Store, podline: Podline) -> None:
    fill(store)
    assert store.exists(MARKER)
    assert MARKER not in store.list()
    store.delete(MARKER)
    before = store.list()
    for command in DELETING:
        answer = podline(*command, "--root", store.uri)
        assert (answer.code, answer.out) == (5, ""), command
        assert f"{store.uri} has no {MARKER}" in answer.err
        assert f"run `podline store mark --root {store.uri}` first" in answer.err
    assert podline("store", "list", "--root", store.uri).code == 0
    assert store.list() == before
    open_store(store.uri).publish_bytes("ledger/any", b"x")
    assert podline(*DELETING[0], "--root", store.uri).out.splitlines()[-1].startswith("1 folder, ")
    assert store.list() == sorted({*before, "ledger/any"} - {f"{BEGUN}/spec.json"})


def test_folders_of_other_programs_are_never_deleted_nor_called_damaged(store: Store, podline: Podline) -> None:
    """Those of YOLO and TensorBoard, other data sets, and one whose name looks like a run's."""
    foreign = [
        "runs/detect/train/weights/best.pt",
        "runs/Nov28_12-00-00_host/events.out.tfevents.1",
        "runs/sweep-0123456789ab/config.yaml",
        "datasets/coco/images/1.jpg",
        "datasets/mnist/3.0.1/mnist-train.tfrecord-00000-of-00001",
        "datasets/coco.yaml",
        "datasets/coco/2017/manifest.json",
        "datasets/stages/0123456789abcdef/1.jpg",
    ]
    plain = open_store(store.uri)
    plain.marks = False  # another program writes
    for name in foreign:
        plain.publish_bytes(name, name.encode())
    store.publish_bytes("ledger/any", b"x")
    assert not store.exists(MARKER)
    assert podline("store", "mark", "--root", store.uri).out == f"{store.where(MARKER)}\n"
    fill(store)
    assert [holding.name for holding in holdings(store)] == [DATASET, RUN_FOLDER, BEGUN]
    verified = json.loads(podline("store", "verify", "--root", store.uri, "--json").out)
    assert not [line for line in verified["problems"] for name in foreign[:2] if name in line]
    assert f"{store.where('runs/detect')} is ignored: 1 file not made by a stage" in verified["notes"]
    assert podline("data", "list", "--root", store.uri).code == 0
    for command in DELETING[:2]:
        podline(*command, "--root", store.uri)
    podline(*DELETING[0], "--root", store.uri)
    assert store.list() == sorted(["ledger/any", *foreign])


def test_links_to_folders_are_followed_and_lead_in_no_circle(tmp_path: Path, podline: Podline) -> None:
    store, far = open_store(tmp_path / "root"), tmp_path / "far"
    fill(store)
    before, far_runs = store.list(), far / "runs"
    far.mkdir()
    for name in ("runs", "datasets/sample"):
        moved = (tmp_path / "root" / name).rename(far / Path(name).name)
        (tmp_path / "root" / name).symlink_to(moved)
    (far_runs / RUN / "up").symlink_to(tmp_path)
    (far_runs / "itself").symlink_to("itself")
    (far_runs / "gone").symlink_to("nowhere")
    assert [name for name in store.list() if "/up/" not in name] == before
    (far_runs / RUN / "up").unlink()
    (far_runs / RUN / "up").symlink_to(tmp_path / "root" / "runs")
    assert store.list() == before
    assert podline(*DELETING[0], "--root", store.uri).code == 0
    assert store.list() == [name for name in before if not name.startswith(BEGUN)]
    assert podline("store", "verify", "--root", store.uri).out.splitlines()[-1].endswith(" checked, 0 problems")
    assert podline("runs", "delete", RUN, "--yes", "--root", store.uri).code == 0
    assert store.list("runs") == []
    assert (tmp_path / "root" / "runs").is_symlink()


@pytest.mark.parametrize("root", ["", "  "])
def test_an_empty_variable_is_no_root(root: str, tmp_path: Path, podline: Podline, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / RUN).mkdir(parents=True)
    (tmp_path / "runs" / RUN / "spec.json").write_text("{}")
    for command in (*DELETING, ("runs", "list"), ("convert", "sample")):
        answer = podline(*command, "--root", root)
        assert (answer.code, answer.out) == (2, ""), answer
        assert "--root" in answer.err
        assert repr(root) in answer.err
    with pytest.raises(SettingsError, match=r"--root: got .*, expected a folder or gs://bucket/prefix"):
        open_store(root)
    assert podline(*DELETING[0], "--root", ".").code == 5
    files = [path for path in tmp_path.rglob("*") if path.is_file() and ".podline" not in path.parts]
    assert files == [tmp_path / "runs" / RUN / "spec.json"]


def aged(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"content")
    os.utime(path, times=(time.time() - 86_400 * days,) * 2)
    return path


def test_old_lock_files_logs_and_mirrors_go_but_for_those_in_use(store: Store, podline: Podline) -> None:
    store.publish_bytes("ledger/any", b"x")
    scratch, run = store.own_folder("locks").parent, "runs/sample-0123456789ab"
    store.own_folder("uses")
    old = [aged(scratch / name, 8) for name in ("locks/a.lock", "locks/b.lock", "uses/c.lock", "logs/train-0.log")]
    old += [aged(scratch / "logs" / f"train-{name}", 38) for name in ("1.spec.json", "1.7.jsonl", "1.7.log")]
    job = [aged(scratch / "logs" / f"train-{name}", 8) for name in ("2.spec.json", "2.7.log")]
    young = [
        *job,
        aged(scratch / "locks" / "d.lock", 1),
        aged(scratch / "mirror" / "runs" / "sample-ba9876543210" / "x", 1),
    ]
    failed = aged(scratch / "mirror" / run / "checkpoints" / "step-00000010.npz", 8)
    with store.using([run]):
        kept = podline("store", "prune", "--yes", "--root", store.uri).out
    assert f"{failed.parents[1]} stays: a running process uses it" in kept
    assert not any(path.exists() for path in old)
    with locks.locked(aged(old[0], 8)):
        for options in ((), ("--yes",)):
            out = podline("store", "prune", *options, "--json", "--root", store.uri).out
            held = {held["folder"] for held in json.loads(out)["holdings"]}
            assert held == {str(scratch / "locks"), str(failed.parents[1])}
            assert old[0].exists()
            assert failed.exists() == (not options)
            assert all(path.exists() for path in young)


def test_a_training_that_begins_anew_forgets_both_sides_but_not_while_it_is_trained(store, tmp_path, monkeypatch):
    monkeypatch.setenv("PODLINE_STORE_LEASE", "0.6")
    store.mark()
    spec = TrainSpec(root=store.uri, recipe=small_recipe(), fingerprint=FINGERPRINT)
    far, near = f"{spec.folder}/checkpoints/step-00000010.npz", mirror_of(store)
    store.publish_bytes(far, b"x")
    near.publish_bytes(f"{spec.folder}/checkpoints/step-00000020.npz", b"x")
    night = Writer(store, spec.folder, "the night on another machine")
    night.take(tmp_path / "night.owner", lambda holder: None)
    with (
        beside(night.keep, 0.1, "lease"),
        pytest.raises(OtherWriterError, match=r"while the night.* writes them; end it"),
    ):
        forget(spec)
    night.give_back()
    assert store.list("runs") == [far]
    forget(spec)
    assert store.list("runs") == near.list() == []
