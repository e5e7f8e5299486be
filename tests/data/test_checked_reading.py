"""Shards are read as the manifest says: by size and time, or their sha256, and each record by its own CRC."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, drawn, publish_dataset

from podline.base.errors import ArtifactError
from podline.base.progress import Event, Reporter
from podline.data.reader import SplitReader, open_split
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest, dataset_folder
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store

FOLDER = dataset_folder("sample", FINGERPRINT)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shards that are hashed."""
    names: list[str] = []
    really = FolderStore.sha256

    def count(store: FolderStore, name: str, found: object = None) -> str:
        names.extend([name] * (".tfrecord-" in name))
        return really(store, name)

    monkeypatch.setattr(FolderStore, "sha256", count)
    return names


def opened(store: Store, manifest: Manifest) -> SplitReader:
    return open_split(store, FOLDER, manifest, "train")


def shards(store: Store, manifest: Manifest) -> list[Path]:
    return [store.local(f"{FOLDER}/{shard.file}") for shard in manifest.split("train").shards]


def relabel(path: Path) -> None:
    """Changes a byte of the last record in place, as an editor of labels would."""
    with path.open("r+b") as stream:
        stream.seek(-10, os.SEEK_END)
        byte = stream.read(1)[0]
        stream.seek(-10, os.SEEK_END)
        stream.write(bytes([byte ^ 1]))


def test_files_are_hashed_unless_they_are_as_they_were_written(
    store: FolderStore, manifest: Manifest, hashed: list[str]
) -> None:
    opened(store, manifest)
    assert hashed == []
    for path in shards(store, manifest):
        path.touch()
    opened(store, manifest)
    names = sorted(f"{FOLDER}/{path.name}" for path in shards(store, manifest))
    assert sorted(hashed) == names
    record = store.local(completion_name(FOLDER, "convert"))
    for damage in (lambda: record.write_bytes(b"{}"), record.unlink):  # a folder without its completion record
        hashed.clear()
        damage()
        opened(store, manifest)
        assert sorted(hashed) == names


def test_a_changed_shard_is_refused_by_name_and_put_back_it_is_read(store: FolderStore, manifest: Manifest) -> None:
    path, said = shards(store, manifest)[1], manifest.split("train").shards[1].sha256[:12]
    whole = path.read_bytes()
    relabel(path)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"{path.name} has sha256 .* vs {said}… in the manifest: .* convert"):
            opened(store, manifest)
    path.write_bytes(whole)
    assert len(opened(store, manifest)) == 96


def test_a_time_that_was_set_back_hides_no_damaged_record(
    store: FolderStore, manifest: Manifest, hashed: list[str]
) -> None:
    path, info = shards(store, manifest)[0], manifest.split("train").shards[0]
    before = path.stat()
    relabel(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    reader, last = opened(store, manifest), info.records - 1
    assert hashed == []
    assert reader.gather(np.arange(last))["label"].shape == (last,)
    byte = last * (manifest.record_length + 16)
    for ids in ([3, last], [last], range(info.records)):  # beside records that were checked, and alone
        with pytest.raises(ArtifactError, match=rf"{path.name}: record {last}, at byte {byte}, has the masked CRC-32C"):
            reader.gather(np.array(ids), ["label"])
    # From now on its time says that it is to be looked at.
    with pytest.raises(ArtifactError, match=f"{path.name} has sha256"):
        opened(store, manifest)
    path.write_bytes(bytes(before.st_size))  # as a power cut leaves it
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArtifactError, match=r"record 5, at byte .* starts with the bytes 0{24} vs "):
        opened(store, manifest).gather(np.array([5]))


def test_what_was_changed_while_it_was_read_is_named(store: FolderStore, manifest: Manifest) -> None:
    reader = opened(store, manifest)
    reader.require_unchanged()
    path = shards(store, manifest)[2]
    whole = path.read_bytes()
    relabel(path)
    path.write_bytes(whole)
    with pytest.raises(ArtifactError, match=rf"{path.name} was changed while it was read"):
        reader.require_unchanged()
    opened(store, manifest).require_unchanged()
    shutil.rmtree(store.local(FOLDER))
    with pytest.raises(ArtifactError, match="was changed while it was read"):
        reader.require_unchanged()


def test_shards_of_a_bucket_are_downloaded_and_give_what_a_folder_gives(tmp_path: Path, gcs_root: str) -> None:
    splits = {"train": drawn(400, 0), "test": drawn(120, 1)}
    readers, events = [], list[Event]()
    for root in (str(tmp_path / "folder"), gcs_root):
        manifest = publish_dataset(root, splits=splits)
        readers.append(open_split(open_store(root), FOLDER, manifest, "train", Reporter("train", events.append)))
    here, there = readers
    order = np.random.default_rng(0).permutation(400)
    for name, values in here.gather(order).items():
        np.testing.assert_array_equal(there.gather(order)[name], values)
    assert there.locate(77) == here.locate(77)
    count = len(here.info.shards)
    assert [(event["done"], event["total"]) for event in events] == [(done, count) for done in range(1, count + 1)]
