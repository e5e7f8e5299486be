"""Records are read by position, from shards that are checked by size and time or sha256, each by its own CRC."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_dataset import FINGERPRINT, drawn, publish, publish_dataset, seal

from podline.base.errors import ArtifactError, StoreError
from podline.base.progress import Event, Reporter, silent
from podline.data.reader import MappedFiles, SplitReader, open_split
from podline.data.records import place_of
from podline.data.versions.validation import check_records
from podline.documents.completion import completion_name
from podline.documents.manifest import Manifest, dataset_folder
from podline.store.contract import Store
from podline.store.folder import FolderStore
from podline.store.opening import open_store

CLASSES = tuple(f"class {number}" for number in range(300))
FOLDER = dataset_folder("sample", FINGERPRINT)
RNG = np.random.default_rng(0)
SPLITS = {
    name: {"image": RNG.integers(0, 256, (count, 4, 4, 3), np.uint8), "label": RNG.integers(0, 300, count)}
    for name, count in {"train": 250, "test": 60}.items()
}
TRAIN = SPLITS["train"]


@pytest.fixture
def wide(tmp_path: Path) -> Manifest:
    """Records whose label takes two bytes; three shards to train on."""
    return publish(tmp_path, "sample", CLASSES, SPLITS, shard_records=100)


@pytest.fixture
def reader(tmp_path: Path, wide: Manifest) -> SplitReader:
    return SplitReader((tmp_path / FOLDER).joinpath, wide, "train")


def test_batches_hold_the_examples_asked_for(reader: SplitReader) -> None:
    assert len(reader) == 250
    for indices in ([249, 0, 0, 157], list(range(250))[::-1], [84], [83, 84, 85], []):
        batch = reader.gather(np.array(indices, np.int64))
        assert batch["label"].dtype == np.int64
        for name, values in TRAIN.items():
            np.testing.assert_array_equal(batch[name], values[indices])
    assert list(reader.gather(np.array([1]), ["label"])) == ["label"]
    for outside in ([-1], [250], [0, 5, 250]):
        with pytest.raises(IndexError, match="expected 0 to 249"):
            reader.gather(np.array(outside))


def test_locate_leads_to_the_bytes(tmp_path: Path, wide: Manifest, reader: SplitReader) -> None:
    place = wide.field("image").offset + 12
    for index in (0, 83, 84, 157, 249):
        file, record, byte = reader.locate(index)
        assert byte == record * (wide.record_length + 16)
        raw = (tmp_path / FOLDER / file).read_bytes()[byte + place :]
        assert raw[:48] == TRAIN["image"][index].tobytes()


def test_threads_may_share_a_reader(reader: SplitReader) -> None:
    batches = [np.random.default_rng(seed).permutation(250)[:32] for seed in range(64)]
    with ThreadPoolExecutor(8) as pool:
        for indices, batch in zip(batches, pool.map(reader.gather, batches), strict=True):
            np.testing.assert_array_equal(batch["image"], TRAIN["image"][indices])


def test_a_label_that_cannot_be_is_found(tmp_path: Path, wide: Manifest) -> None:
    assert wide.split("train").class_counts == tuple(np.bincount(TRAIN["label"], minlength=300).tolist())
    path = tmp_path / FOLDER / wide.split("train").shards[1].file
    frames = np.fromfile(path, np.uint8).reshape(-1, wide.record_length + 16)
    frames[4, place_of(wide.field("label"))] = np.frombuffer(b"\xac\x02", np.uint8)
    frames.tofile(path)
    place = f"record 4, at byte {4 * frames.shape[1]}"
    with pytest.raises(ArtifactError, match=rf"{path.name}: {place}, .* 300, expected 0 to 299"):
        check_records(open_store(tmp_path), FOLDER, seal(tmp_path), silent())


# Files in one range of addresses


def written(folder: Path, sizes: list[int]) -> dict[Path, bytes]:
    files = {folder / str(number): RNG.bytes(size) for number, size in enumerate(sizes)}
    for path, data in files.items():
        path.write_bytes(data)
    return files


def test_bytes_come_out_of_any_mapped_file(tmp_path: Path) -> None:
    contents = written(tmp_path, [10_000, 1, 0, 4096, 4097])
    mapped = MappedFiles({path: len(data) for path, data in contents.items()})
    for start, data in zip(mapped.starts.tolist(), contents.values(), strict=True):
        assert mapped.data[start : start + len(data)].tobytes() == data
    first, *_, last = contents.values()
    starts = np.array([mapped.starts[4] + 4090, 0, 3, 9_993])
    expected = [last[4090:4097], first[:7], first[3:10], first[9_993:]]
    assert [row.tobytes() for row in mapped.take(starts, 7)] == expected
    with pytest.raises(ValueError, match="read-only"):
        mapped.data[0] = 1
    for files in ({}, dict.fromkeys(written(tmp_path, [0, 0]), 0)):
        assert MappedFiles(files).take(np.empty(0, np.int64), 7).shape == (0, 7)


def test_a_file_of_another_size_or_none_is_named(tmp_path: Path) -> None:
    for size in (0, 59, 61):
        (path,) = written(tmp_path, [size])
        with pytest.raises(ArtifactError, match=rf"{path} has {size} bytes vs 60 in the manifest"):
            MappedFiles({path: 60})
    with pytest.raises(ArtifactError, match="shard is gone"):
        MappedFiles({tmp_path / "shard": 60})
    with pytest.raises(StoreError, match=f"cannot read {tmp_path}"):
        MappedFiles({tmp_path: 60})


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


def reader_of(store: Store, manifest: Manifest) -> SplitReader:
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
    reader_of(store, manifest)
    assert hashed == []
    for path in shards(store, manifest):
        path.touch()
    reader_of(store, manifest)
    names = sorted(f"{FOLDER}/{path.name}" for path in shards(store, manifest))
    assert sorted(hashed) == names
    record = store.local(completion_name(FOLDER, "convert"))
    for damage in (lambda: record.write_bytes(b"{}"), record.unlink):  # a folder without its completion record
        hashed.clear()
        damage()
        reader_of(store, manifest)
        assert sorted(hashed) == names


def test_a_changed_shard_is_refused_by_name_and_put_back_it_is_read(store: FolderStore, manifest: Manifest) -> None:
    path, said = shards(store, manifest)[1], manifest.split("train").shards[1].sha256[:12]
    whole = path.read_bytes()
    relabel(path)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"{path.name} has sha256 .* vs {said}… in the manifest: .* convert"):
            reader_of(store, manifest)
    path.write_bytes(whole)
    assert len(reader_of(store, manifest)) == 96


def test_a_time_that_was_set_back_hides_no_damaged_record(
    store: FolderStore, manifest: Manifest, hashed: list[str]
) -> None:
    path, info = shards(store, manifest)[0], manifest.split("train").shards[0]
    before = path.stat()
    relabel(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    reader, last = reader_of(store, manifest), info.records - 1
    assert hashed == []
    assert reader.gather(np.arange(last))["label"].shape == (last,)
    byte = last * (manifest.record_length + 16)
    for ids in ([3, last], [last], range(info.records)):  # beside records that were checked, and alone
        with pytest.raises(ArtifactError, match=rf"{path.name}: record {last}, at byte {byte}, has the masked CRC-32C"):
            reader.gather(np.array(ids), ["label"])
    # From now on its time says that it is to be looked at.
    with pytest.raises(ArtifactError, match=f"{path.name} has sha256"):
        reader_of(store, manifest)
    path.write_bytes(bytes(before.st_size))  # as a power cut leaves it
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArtifactError, match=r"record 5, at byte .* starts with the bytes 0{24}, expected "):
        reader_of(store, manifest).gather(np.array([5]))


def test_what_was_changed_while_it_was_read_is_named(store: FolderStore, manifest: Manifest) -> None:
    reader = reader_of(store, manifest)
    reader.require_unchanged()
    path = shards(store, manifest)[2]
    whole = path.read_bytes()
    relabel(path)
    path.write_bytes(whole)
    with pytest.raises(ArtifactError, match=rf"{path.name} was changed while it was read"):
        reader.require_unchanged()
    reader_of(store, manifest).require_unchanged()
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
