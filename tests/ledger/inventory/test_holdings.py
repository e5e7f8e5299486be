"""What a store holds, what is wrong with it, what nobody needs; in a folder and in a bucket."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import fault_proxy
import pytest
from click.testing import CliRunner
from small_dataset import CLASS_NAMES, FINGERPRINT, drawn, publish, publish_dataset
from small_poses import RECIPE, publish_poses
from small_runs import publish_run

from podline.base.errors import ArtifactError, StoreError
from podline.base.progress import Reporter, silent
from podline.cli import cli
from podline.data.versions.publishing import delete_orphans
from podline.documents.champions import Candidate, crown
from podline.documents.completion import record_files
from podline.documents.manifest import dataset_folder
from podline.documents.versions import Version, publish_version
from podline.ledger.inventory.catalogue import dataset_for
from podline.ledger.inventory.inventory import holdings, needless, pruned
from podline.ledger.inventory.verification import verify
from podline.recipes.registry import override
from podline.stages.specs import ValidateSpec
from podline.stages.table import VALIDATE
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.one_writer import writing
from podline.store.opening import open_store

DATASET = dataset_folder("sample", FINGERPRINT)


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    root = str(tmp_path / "root") if request.param == "folder" else request.getfixturevalue("gcs_root")
    publish_dataset(root)
    store = open_store(root)
    record_files(store, DATASET, "convert", [f"{DATASET}/manifest.json"])
    return store


def problems(store: Store) -> list[str]:
    return verify(store, Reporter("store", lambda _event: None)).problems


def test_a_store_that_is_whole_has_no_problems_and_each_damage_has_its_name(store: Store) -> None:
    publish_run(store, "sample-000000000001")
    assert problems(store) == []
    shards = [name for name in store.list(DATASET) if "tfrecord" in name]
    changed = bytearray(store.read_bytes(shards[0]))
    changed[20] ^= 1
    store.publish_bytes(shards[0], bytes(changed), replace=True)
    store.delete(shards[1])
    store.publish_bytes(shards[2], b"short", replace=True)
    store.publish_bytes(f"{DATASET}/left", b"x")
    store.publish_bytes("runs/sample-000000000001/checkpoints/step-00000010.npz", b"x")
    store.publish_bytes("datasets/sample/00000000000000ff/sample-train.tfrecord-00000-of-00002", b"x")
    found = problems(store)
    expected = {
        shards[0]: "has sha256",
        shards[1]: "is gone",
        shards[2]: "has 5 bytes, expected",
        f"{DATASET}/left": "is an orphan",
        "step-00000010.npz": "is an orphan",
        "datasets/sample/00000000000000ff": "is not finished",
    }
    for name, words in expected.items():
        assert [line for line in found if name in line and words in line], (name, words, found)
    assert len(found) == len(expected)


@pytest.mark.parametrize("name", ["stages", "images.tfrecord-1"])
def test_a_data_set_may_have_the_name_of_a_folder_or_the_middle_of_a_shard_s(store: Store, name: str) -> None:
    folder = dataset_folder(name, FINGERPRINT)
    with writing(store, folder, "a test", lambda _: None):
        publish(store.uri, name, CLASS_NAMES, {"train": drawn(20, 0), "test": drawn(20, 1)}, shard_records=20)
        publish_version(store, name, Version(number=0, fingerprint=FINGERPRINT, content=FINGERPRINT))
        delete_orphans(store, folder)
    assert problems(store) == []
    [holding] = [holding for holding in holdings(store) if holding.name == folder]
    deleted: list[str] = []
    dataclasses.replace(holding, store=Mock(parallel=1, delete=lambda name, _: deleted.append(name))).delete()
    assert deleted[:2] == [f"{folder}/manifest.json", f"{folder}/stages/convert.json"]


def test_a_bucket_is_verified_without_a_request_for_each_object(proxy: fault_proxy.FaultProxy, gcs_root: str) -> None:
    publish_dataset(gcs_root)
    store = open_store(gcs_root)
    for number in range(3):
        publish_run(store, f"sample-00000000000{number}")
    record_files(store, DATASET, "convert", [f"{DATASET}/manifest.json"])
    proxy.queries.clear()
    assert problems(store) == []
    # A listing; of each run its record, and the data set's; the manifest. All else is compared by the listing.
    assert len(proxy.queries) == 1 + 3 + 1 + 1


def test_what_a_run_needs_is_never_needless(store: Store) -> None:
    publish_run(store, "sample-000000000001")
    store.publish_bytes("datasets/sample/00000000000000ff/sample-train.tfrecord-00000-of-00002", b"x")
    store.publish_json("runs/begun-000000000000/spec.json", {})
    before = store.list()
    assert needless(holdings(store), before=0.0) == []
    soon = max(holding.touched for holding in holdings(store)) + 1
    found = needless(holdings(store), before=soon)
    assert [holding.name for holding in found] == ["datasets/sample/00000000000000ff", "runs/begun-000000000000"]
    assert store.list() == before
    for holding in found:
        holding.remove()
    assert [holding.name for holding in holdings(store)] == [DATASET, "runs/sample-000000000001"]
    assert problems(store) == []
    store.delete("runs/sample-000000000001/spec.json")
    assert DATASET in {holding.name for holding in needless(holdings(store), before=soon)}


RUN, BEGUN, OTHER = "runs/sample-000000000001", "runs/sample-000000000002", "datasets/sample/00000000000000ff"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # It could name any data set and any run.
        (f"{RUN}/spec.json", {DATASET, OTHER, RUN, BEGUN, "runs/begun-000000000000"}),
        # Shards of any other version, each of which it could need.
        (f"{DATASET}/manifest.json", {DATASET, OTHER, RUN}),
        ("versions/sample/000001.json", {DATASET, OTHER, RUN}),
        ("models/sample/history/000001.json", {DATASET, RUN, BEGUN}),
    ],
)
def test_a_damaged_document_is_named_beside_the_listing_and_what_it_could_name_stays(
    store: Store, name: str, kept: set[str]
) -> None:
    publish_run(store, "sample-000000000001")
    crown(store, "sample", Candidate("sample-000000000001", "0", "sample", FINGERPRINT), None, "promoted")
    publish_version(store, "sample", Version(number=0, fingerprint=FINGERPRINT, content=FINGERPRINT))
    store.publish_bytes(f"{OTHER}/sample-train.tfrecord-00000-of-00002", b"x")
    for begun in (BEGUN, "runs/begun-000000000000"):
        store.publish_json(f"{begun}/spec.json", {}, replace=True)
    content = store.read_bytes(name)
    for damaged in (content[: len(content) // 2], content.replace(b'": "', b'": "x', 1)):
        store.publish_bytes(name, damaged, replace=True)
        listed = CliRunner().invoke(cli, ["store", "list", "--root", store.uri])
        assert store.where(name) in str(listed.exception)
        assert [line.split()[0] for line in listed.output.splitlines()[:5]] == sorted(
            {DATASET, OTHER, RUN, BEGUN, "runs/begun-000000000000"}
        )
        gone, _ = pruned(store, store.now() + 1, lambda _: None, delete=False)
        assert {holding.name for holding in holdings(store, lambda _: None)} - {one.name for one in gone} == kept
        with pytest.raises(ArtifactError):
            holdings(store)


def test_what_a_living_process_works_on_stays_whatever_its_age_and_our_clock_says(store: Store, monkeypatch) -> None:
    store.publish_bytes("runs/begun-000000000000/checkpoints/x.npz", b"x")
    later = store.now() + 1e9
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: later)
        found = CliRunner().invoke(cli, ["store", "prune", "--root", store.uri, "--json"])
    assert json.loads(found.output)["holdings"] == []
    lock = """
import sys
from podline.store.opening import open_store
with open_store(sys.argv[1]).using(sys.argv[2:]):
    print("working", flush=True)
    sys.stdin.read()
"""
    arguments = [sys.executable, "-c", lock, store.uri, DATASET, "runs/begun-000000000000"]
    working = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert working.stdout.readline() == b"working\n"
    old = needless(holdings(store), before=max(holding.touched for holding in holdings(store)) + 1)
    assert [holding.name for holding in old] == [DATASET, "runs/begun-000000000000"]
    before = store.list()
    assert [holding.in_use for holding in old] == [True, True]
    assert [holding.remove() for holding in old] == [False, False]
    assert store.list() == before
    working.kill()
    working.communicate()
    assert [holding.remove() for holding in old] == [True, True]
    assert store.list() == []


def test_a_stage_at_work_is_not_pruned(store: Store, podline, monkeypatch: pytest.MonkeyPatch) -> None:
    def pruned_now(*_: object) -> str:
        return podline("store", "prune", "--root", store.uri, "--days", "0", "--yes").out

    spec = ValidateSpec(root=store.uri, dataset="sample", fingerprint=FINGERPRINT, manifest_sha256="0")
    monkeypatch.setattr("podline.commands.store._OTHERS_SECONDS", 0)
    monkeypatch.setattr("podline.data.versions.validation.validate", pruned_now)
    said = str(VALIDATE.run(spec, silent()))
    assert f"{DATASET} stays: a running process uses it" in said
    assert "0 folders, 0 bytes deleted" in said
    assert "1 folder" in pruned_now()
    assert store.list(DATASET) == []


def test_a_recipe_of_poses_takes_data_of_its_own_size(tmp_path: Path) -> None:
    publish_poses(tmp_path)
    store, larger = open_store(tmp_path), override(RECIPE, {"task.side": 96})
    assert dataset_for(store, RECIPE, None, silent()).fingerprint == FINGERPRINT
    with pytest.raises(StoreError, match=r"no data set coco with images of 96 pixels; .*convert coco .* --side 96"):
        dataset_for(store, larger, None, silent())
    # One that is named is taken; that it does not fit is told where it is opened.
    assert dataset_for(store, larger, FINGERPRINT[:4], silent()).fingerprint == FINGERPRINT


def test_runs_are_deleted_but_for_champions_and_what_they_need(store: Store, podline) -> None:
    publish_run(store, "sample-000000000001")
    publish_run(store, "sample-000000000002", further="sample-000000000001")
    for name in ("sample-000000000003", "sample-000000000004", "other-000000000001"):
        publish_run(store, name)
    publish_run(store, "sample-000000000005", further="sample-000000000004")
    crown(store, "sample", Candidate("sample-000000000002", "0", "sample", FINGERPRINT), None, "promoted")
    held = {holding.name: holding for holding in holdings(store)}
    assert held["runs/sample-000000000001"].users == ("sample-000000000002",)
    assert len(held[DATASET].users) == 6
    assert held[DATASET].bytes == sum(found.bytes for found in store.listing(DATASET))
    names = [f"sample-00000000000{number}" for number in (1, 2, 4)]
    with store.using(["runs/sample-000000000004"]):
        said = podline("runs", "delete", *names, "sample-000000000003", "--yes", "--root", store.uri)
    _, *kept, in_use, total = said.out.splitlines()
    assert kept == [
        "sample-000000000001 stays: used by sample-000000000002",
        "sample-000000000002 stays: used by models/sample",
    ]
    assert in_use.startswith("sample-000000000004 stays: ")
    assert total.startswith("1 run, ")
    left = {*names, "sample-000000000005", "other-000000000001"}
    assert {holding.name for holding in holdings(store)} == {DATASET, *(f"runs/{name}" for name in left)}
    assert problems(store) == []
    asked = podline("runs", "delete", "--days", "0", "--recipe", "sample", "--root", store.uri, "--json")
    assert json.loads(asked.out)["runs"] == ["sample-000000000004", "sample-000000000005"]
    podline("runs", "delete", "--days", "0", "--keep", "1", "--yes", "--root", store.uri)
    kept = {holding.name.removeprefix("runs/") for holding in holdings(store)} & left
    assert left - kept <= {"sample-000000000004", "sample-000000000005"}
    assert left - kept != {"sample-000000000004", "sample-000000000005"}
    gone = podline("runs", "delete", "sample-000000000003", "--root", store.uri)
    assert (gone.code, "runs/sample-000000000003 does not exist; " in gone.err) == (5, True)
    assert podline("runs", "delete", "--root", store.uri).code == 2
    # Locks of another machine are known here in a folder only; its lease is.
    other = "runs/other-000000000001"
    locked = store.using([other]) if isinstance(store, FolderStore) else nullcontext()
    with writing(store, other, "train", lambda *_: None), locked:
        said = podline("runs", "delete", "other-000000000001", "--yes", "--root", store.uri)
    assert said.out.startswith("other-000000000001 stays: a running process uses it")
