"""What another machine may use in a bucket is neither joined nor deleted; locks of this machine say nothing of it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from converted_images import converted, images_spec
from drawn_images import as_folders, drawn, encoded, images

from podline.base.errors import ChildKilledError, StoreUnavailableError
from podline.base.progress import silent
from podline.beam_jobs.jobs import job_folder
from podline.data import shards
from podline.ledger.inventory.inventory import pruned
from podline.ledger.inventory.verification import verify
from podline.store.buckets import forget_clients
from podline.store.contract import Store
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


def on_machine(name: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as a machine sees it: by a cache of its own, whose locks no other machine sees."""
    monkeypatch.setenv("PODLINE_STORE_CACHE", str(tmp_path / name))
    forget_clients()
    return open_store(root)


def test_an_interrupted_job_is_continued_by_its_machine_alone(
    gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, stores = images_spec(gcs_root, tmp_path), {}
    for name in ("ours", "theirs"):
        stores[name] = on_machine(name, gcs_root, tmp_path, monkeypatch)
    with contextlib.suppress(ChildKilledError), job_folder(stores["ours"], spec) as first:
        stores["ours"].publish_bytes(f"{first}/batch", b"x")
        with job_folder(stores["theirs"], spec) as other:
            stores["theirs"].publish_bytes(f"{other}/batch", b"y")
        assert stores["ours"].list("jobs") == [f"{first}/batch"]
        raise ChildKilledError
    with job_folder(stores["theirs"], spec) as other:
        assert other != first
    with job_folder(stores["ours"], spec) as again:
        assert again == first
    assert stores["ours"].list("jobs") == []
    with job_folder(stores["ours"], spec) as later:
        assert later != first


@pytest.mark.parametrize("deleted", [False, True])
def test_a_version_that_another_machine_extends_is_not_pruned_and_never_missed_in_silence(
    gcs_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    folder = as_folders(tmp_path / "raw", images(30))
    base = converted(gcs_root, folder)
    converted(gcs_root, folder, side=24)  # so that the base is not the newest version, which is never needless
    as_folders(folder, {"cat": {"new.png": encoded(drawn(9_000))}})

    def prune(*args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            theirs = on_machine("theirs", gcs_root, tmp_path, patch)
            gone = [holding.name for holding in pruned(theirs, time.time() + 1e6, delete=True)[0]]
            assert base.folder not in gone
            if deleted:  # by an older release of Podline
                theirs.delete(f"{base.folder}/manifest.json")
        forget_clients()
        return shards.write_shard(*args, **kwargs)

    monkeypatch.setattr("podline.beam_jobs.workers.write_shard", prune)
    if deleted:
        with pytest.raises(StoreUnavailableError, match=f"version {base.fingerprint} .* was deleted meanwhile"):
            converted(gcs_root, folder)
        monkeypatch.setattr("podline.beam_jobs.workers.write_shard", shards.write_shard)
    grown = converted(gcs_root, folder)
    assert grown.base == ("" if deleted else base.fingerprint)
    problems = verify(open_store(gcs_root), silent()).problems
    assert not [line for line in problems if grown.folder in line and "is an orphan" not in line]


def test_shards_that_a_conversion_of_another_machine_left_go_with_the_next_one(gcs_root: str, tmp_path: Path) -> None:
    store, folder = open_store(gcs_root), as_folders(tmp_path / "raw", images(30))
    manifest = converted(gcs_root, folder)
    left = f"{manifest.folder}/images.{'0' * 16}-train.tfrecord-00000-of-00001"
    store.publish_bytes(left, b"x", replace=True)
    converted(gcs_root, folder)
    assert not store.exists(left)
