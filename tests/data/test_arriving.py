"""Shards in a bucket are read before they are here, by range, and give what the whole files give."""

from __future__ import annotations

import time
from pathlib import Path

import fault_proxy
import numpy as np
import pytest
from small_dataset import FINGERPRINT, drawn, publish_dataset

from podline.data import arriving
from podline.data.arriving import Arrivals
from podline.data.reader import SplitReader, open_split
from podline.data.tfrecord import FRAME_BYTES
from podline.documents.manifest import Manifest, dataset_folder
from podline.errors import ArtifactError, StoreError, StoreUnavailableError
from podline.store.buckets import forget_clients
from podline.store.contract import Listed, Store
from podline.store.opening import open_store

FOLDER = dataset_folder("sample", FINGERPRINT)
SPLITS = {"train": drawn(400, 0), "test": drawn(120, 1)}


@pytest.fixture
def store(gcs_root: str) -> Store:
    return open_store(gcs_root)


@pytest.fixture
def manifest(store: Store, tmp_path: Path) -> Manifest:
    publish_dataset(tmp_path / "folder", splits=SPLITS)
    return publish_dataset(store.uri, splits=SPLITS)


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> SplitReader:
    return open_split(open_store(tmp_path / "folder"), FOLDER, manifest, "train")


@pytest.fixture
def never_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards do not arrive."""
    monkeypatch.setattr(Arrivals, "fetch", lambda _arrivals: None)


def same(found: SplitReader, expected: SplitReader, indices: np.ndarray) -> None:
    ours, theirs = found.gather(indices), expected.gather(indices)
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


def test_shards_that_arrive_give_what_a_folder_gives(store: Store, manifest: Manifest, folder: SplitReader) -> None:
    split = open_split(store, FOLDER, manifest, "train")
    order = np.random.default_rng(0).permutation(len(folder))
    for start in range(0, len(folder), 50):
        same(split, folder, order[start : start + 50])
    same(split, folder, order)
    assert split.locate(77) == folder.locate(77)


@pytest.mark.parametrize("batch", [[7], range(400)])
def test_the_first_batch_comes_before_the_shards(
    store: Store,
    manifest: Manifest,
    folder: SplitReader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: list[int],
) -> None:
    monkeypatch.setattr(arriving, "_FIRST_SECONDS", 3600.0)
    copies = tmp_path / "cache" / "objects"
    split = open_split(store, FOLDER, manifest, "train")
    assert not list(copies.iterdir())
    same(split, folder, np.array(batch))
    while len(list(copies.iterdir())) < len(folder.info.shards):
        time.sleep(0.01)


@pytest.mark.usefixtures("never_here")
def test_records_are_read_by_range_before_their_shard_is_here(
    store: Store, manifest: Manifest, folder: SplitReader
) -> None:
    split = open_split(store, FOLDER, manifest, "train")
    same(split, folder, np.array([399, 3, 3, 250, 120]))
    assert split.gather(np.array([5]), ["label"])["label"].shape == (1,)


@pytest.mark.usefixtures("never_here")
@pytest.mark.parametrize(
    ("batch", "between", "longest", "ranges"),
    [([7, 5], 1, 3, 1), ([7, 5], 0, 3, 2), ([7, 5], 1, 2, 2), ([5, 5], 0, 1, 1), ([39, 40], 9, 9, 2)],
    ids=["near", "too far", "too long", "twice", "two shards"],
)
def test_records_that_lie_near_each_other_come_in_one_range(
    proxy: fault_proxy.FaultProxy,
    manifest: Manifest,
    store: Store,
    folder: SplitReader,
    monkeypatch: pytest.MonkeyPatch,
    batch: list[int],
    between: int,
    longest: int,
    ranges: int,
) -> None:
    frame = manifest.record_length + FRAME_BYTES
    monkeypatch.setattr(arriving, "_LARGEST_GAP_BYTES", between * frame)
    monkeypatch.setattr(arriving, "_LARGEST_RANGE_BYTES", longest * frame)
    split = open_split(store, FOLDER, manifest, "train")
    proxy.queries.clear()
    same(split, folder, np.array(batch))
    assert len(proxy.queries) == ranges


def test_all_shards_are_looked_at_by_one_request(
    proxy: fault_proxy.FaultProxy, store: Store, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.queries.clear()
    split = open_split(open_store(store.uri), FOLDER, manifest, "train")
    split.gather(np.arange(400))
    assert sum("prefix" in query for query in proxy.queries) == 1
    assert len(proxy.queries) == 1 + len(manifest.split("train").shards)


@pytest.mark.usefixtures("never_here")
def test_a_shard_that_changes_is_refused_by_name(store: Store, manifest: Manifest) -> None:
    split = open_split(store, FOLDER, manifest, "train")
    name = f"{FOLDER}/{manifest.split('train').shards[0].file}"
    store.publish_bytes(name, bytes(len(store.read_bytes(name))), replace=True)
    with pytest.raises(ArtifactError, match=r"00000-of-\d+ is generation \d+ vs \d+ when it was looked at first"):
        split.gather(np.array([0]))
    with pytest.raises(ArtifactError, match="not what the manifest says"):
        open_split(store, FOLDER, manifest, "train")
    store.delete(name)
    with pytest.raises(ArtifactError, match="is gone; convert the data again"):
        open_split(store, FOLDER, manifest, "train")


def test_what_goes_wrong_while_shards_arrive_is_told_to_who_reads(
    store: Store, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_name: str, _found: Listed) -> Path:
        raise StoreError("the cache is full")

    monkeypatch.setattr(store, "local", fail)
    split = open_split(store, FOLDER, manifest, "train")
    with pytest.raises(StoreError, match="the cache is full"):
        split.gather(np.arange(400))


@pytest.mark.usefixtures("never_here")
def test_a_damaged_record_is_read_again(
    gcs: str, gcs_root: str, manifest: Manifest, folder: SplitReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy.fault_proxy(gcs) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        forget_clients()
        split = open_split(open_store(gcs_root), FOLDER, manifest, "train")
        proxy.share, proxy.faults, proxy.left = 1.0, (fault_proxy.DAMAGE,), 2
        same(split, folder, np.array([7]))
        assert proxy.happened[fault_proxy.DAMAGE] == 2
        proxy.left = 100
        with pytest.raises(StoreUnavailableError, match="record 8 arrives damaged, 10 times in a row"):
            split.gather(np.array([8]))
