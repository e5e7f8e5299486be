"""Raw files in a bucket give the same source as in a folder; each is downloaded once."""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fault_proxy
import numpy as np
import pytest
from coco_files import CocoFiles, open_coco
from gcs_emulator import upload
from published import (
    MNIST_NAMES,
    archive_of,
    cifar10_batch,
    write_cifar10_bins,
    write_cifar10_pickles,
    write_cifar100_pickles,
    write_mnist,
)

from podline.data.sources import remote
from podline.data.sources.coco import CocoSource
from podline.data.sources.coco_records import squares_of
from podline.data.sources.duplicates import without_repeated
from podline.data.sources.keypoints import open_keypoints
from podline.data.sources.opening import open_source
from podline.data.sources.source import Source
from podline.errors import ArtifactError, SourceError
from podline.recipes import datasets
from podline.store.opening import open_store


def everything(source: Source) -> dict[str, np.ndarray]:
    columns = [(split.name, split.read(np.arange(len(split))[::-1])) for split in source.splits]
    return {f"{name} {key}": column for name, found in columns for key, column in found.items()}


def same(found: Source, expected: Source) -> None:
    assert (found.dataset, found.class_names, found.files) == (expected.dataset, expected.class_names, expected.files)
    for ours, theirs in zip(found.splits, expected.splits, strict=True):
        assert [replace(block, path="", modified=0) for block in ours.blocks] == [
            replace(block, path="", modified=0) for block in theirs.blocks
        ]
    expected_columns = everything(expected)
    for name, column in everything(found).items():
        np.testing.assert_array_equal(column, expected_columns[name])


def python3_pickles(folder: Path) -> Path:
    """Pixels that cannot be read by position: Python 3's protocol 0 writes them as text."""
    write_cifar10_pickles(folder)
    (folder / "data_batch_2").write_bytes(pickle.dumps(cifar10_batch("data_batch_2", 5), 0))
    return folder


@pytest.mark.parametrize(
    ("dataset", "write"),
    [
        ("cifar10", write_cifar10_bins),
        ("cifar10", write_cifar10_pickles),
        ("cifar10", python3_pickles),
        ("cifar100", write_cifar100_pickles),
        ("mnist", write_mnist),
    ],
)
def test_plain_files_are_downloaded_once(
    tmp_path: Path,
    gcs_root: str,
    proxy: fault_proxy.FaultProxy,
    dataset: str,
    write: Callable[[Path], Path],
) -> None:
    raw = write(tmp_path / "raw")
    for path in raw.glob("*.gz"):
        (raw / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    uri = upload(raw, f"{gcs_root}raw data")
    source = open_source(dataset, uri, tmp_path / "work")
    same(source, open_source(dataset, str(raw), tmp_path / "work2"))
    assert sum(proxy.downloaded.values()) == sum(path.stat().st_size for path in raw.iterdir())
    proxy.downloaded.clear()
    open_source(dataset, uri, tmp_path / "work").splits[0].read(np.array([0]))
    assert not proxy.downloaded


def test_what_is_compressed_is_copied_once_and_unpacked(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy
) -> None:
    folder = write_cifar10_pickles(tmp_path / "raw" / "cifar-10-batches-py")
    (tmp_path / "packed").mkdir()
    archive = archive_of(folder, tmp_path / "packed" / "cifar-10-python.tar.gz")
    mnist = write_mnist(tmp_path / "mnist")
    for name in MNIST_NAMES:
        if (mnist / name).exists():
            (mnist / f"{name}.gz").write_bytes(gzip.compress((mnist / name).read_bytes()))
            (mnist / name).unlink()
    for dataset, place in (("cifar10", archive.parent), ("mnist", mnist)):
        uri = upload(place, f"{gcs_root}{dataset}")
        for _ in range(2):
            same(open_source(dataset, uri, tmp_path / "work"), open_source(dataset, str(place), tmp_path / "work2"))
    same(
        open_source("cifar10", f"{gcs_root}cifar10/{archive.name}", tmp_path / "work"),
        open_source("cifar10", str(archive), tmp_path / "work2"),
    )
    sizes = {path.name: path.stat().st_size for path in (archive, *mnist.iterdir())}
    assert {
        Path(name).name: sent - 4 * name.endswith("gz") for name, sent in proxy.downloaded.items()
    }.keys() == sizes.keys()
    assert proxy.downloaded[f"{gcs_root.partition('podline-test/')[2]}cifar10/{archive.name}"] == sizes[archive.name]


def coco(tmp_path: Path, gcs_root: str, *, zipped: bool) -> tuple[str, Path]:
    raw = tmp_path / f"raw{zipped}"
    CocoFiles("val", 3, 101).write(raw, zipped=zipped)
    CocoFiles("train", 6).write(raw, zipped=zipped)
    if zipped:
        (raw / "test2017.zip").write_bytes(bytes(1_000_000))
    return upload(raw, f"{gcs_root}coco{zipped}"), raw


def pictures(source: CocoSource) -> dict[str, list[tuple[bytes, bytes]]]:
    return {
        name: [(image.place.read_same(), squares_of([image], source.decoded, 64).tobytes()) for image in images]
        for name, images in source.splits.items()
    }


@pytest.mark.parametrize("zipped", [False, True])
def test_images_and_annotations_are_downloaded_once(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, zipped: bool
) -> None:
    uri, raw = coco(tmp_path, gcs_root, zipped=zipped)
    found = open_coco(uri, tmp_path / "work")
    expected = open_coco(raw, tmp_path / "work2")
    assert (found.files, found.sizes, found.counted) == (expected.files, expected.sizes, expected.counted)
    assert pictures(found) == pictures(expected)
    needed = [path for path in raw.rglob("*.*") if path.is_file() and not path.name.startswith("test2017")]
    assert sum(proxy.downloaded.values()) == sum(path.stat().st_size for path in needed)
    proxy.downloaded.clear()
    assert open_coco(uri, tmp_path / "work") == found
    assert not proxy.downloaded


@pytest.mark.parametrize("faults", [(fault_proxy.DAMAGE,), fault_proxy.ALL])
def test_what_arrives_damaged_is_asked_for_again(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, faults: tuple[str, ...]
) -> None:
    raw = write_cifar10_pickles(tmp_path / "raw")
    uri = upload(raw, f"{gcs_root}raw")
    coco_uri, coco_raw = coco(tmp_path, gcs_root, zipped=False)
    proxy.share, proxy.faults = 0.2, faults
    same(open_source("cifar10", uri, tmp_path / "work"), open_source("cifar10", str(raw), tmp_path / "work2"))
    ours, theirs = open_coco(coco_uri, tmp_path), open_coco(coco_raw, tmp_path)
    assert pictures(ours) == pictures(theirs)
    assert proxy.happened.total() > 1


def test_a_file_that_changes_after_it_was_looked_at_is_refused_by_name(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = upload(write_cifar10_bins(tmp_path / "raw"), f"{gcs_root}raw")
    listed = remote.objects_of(uri)
    upload(write_cifar10_bins(tmp_path / "raw", rows=5), uri)
    monkeypatch.setattr(remote, "objects_of", lambda _uri: listed)
    with pytest.raises(ArtifactError, match=r"raw/.* is generation \d+ vs \d+ when it was looked at first"):
        open_source("cifar10", uri, tmp_path / "work")


def test_rows_of_a_copy_are_read_after_another_process_has_used_it(tmp_path: Path, gcs_root: str) -> None:
    source = open_source("cifar10", upload(write_cifar10_bins(tmp_path / "raw"), f"{gcs_root}raw"), tmp_path / "work")
    os.utime(source.splits[1].blocks[0].path)  # as the cache does
    assert len(source.splits[1].read(np.arange(2))["image"]) == 2


def test_keypoints_in_a_bucket_are_those_of_a_folder(tmp_path: Path, gcs_root: str) -> None:
    raw = CocoFiles("train", 6).write(tmp_path / "raw")
    dataset = datasets.find("keypoints")
    settings = dataset.settings_of({"side": 64})
    uri = upload(raw, f"{gcs_root}keypoints")
    found, expected = (open_keypoints(dataset, place, settings, tmp_path / "work") for place in (uri, str(raw)))
    assert isinstance(found, CocoSource)
    assert (found.files, pictures(found)) == (expected.files, pictures(expected))
    assert found.notes[0] == f"train: {uri}/annotations/person_keypoints_train2017.json, images in {uri}/train2017"
    (raw / "annotations" / "person_keypoints_train2017.json").write_text("{")
    with pytest.raises(SourceError, match=f"{uri}/annotations/person_keypoints_train2017.json is not valid JSON"):
        open_keypoints(dataset, upload(raw, uri), settings, tmp_path / "work")


def test_training_images_of_the_test_split_are_found_in_a_bucket(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy
) -> None:
    raw = write_cifar10_bins(tmp_path / "raw", rows=120)
    test = bytearray((raw / "test_batch.bin").read_bytes())
    test[1:3073] = (raw / "data_batch_3.bin").read_bytes()[3074:6146]
    (raw / "test_batch.bin").write_bytes(test)
    found, _ = without_repeated(open_source("cifar10", upload(raw, f"{gcs_root}raw"), tmp_path / "work"))
    assert [record.record for record in found.quarantined] == ["data_batch_3.bin[1]"]


def test_a_bucket_with_nothing_that_fits_says_what_it_has(tmp_path: Path, gcs_root: str) -> None:
    open_store(gcs_root).publish_bytes("some/thing", b"x")
    with pytest.raises(SourceError, match=r"gs://.* holds some, and no file that this data set needs"):
        open_source("cifar10", gcs_root, tmp_path / "work")
    with pytest.raises(SourceError, match=r"nothing: there is no object of that name, and none below it"):
        open_source("cifar10", f"{gcs_root}nothing", tmp_path / "work")
    with pytest.raises(SourceError, match=r"gs://.* holds some vs annotations/person_keypoints_train2017"):
        open_coco(gcs_root, tmp_path / "work")
