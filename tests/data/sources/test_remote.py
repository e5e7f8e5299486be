"""Raw files in a bucket give the same source as in a folder; each is downloaded once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import fault_proxy
import numpy as np
import pytest
from coco_files import CocoFiles, open_coco, people_in
from drawn_images import as_folders, drawn, encoded
from gcs_emulator import upload
from published import same_content, write_cifar10_bins, write_mnist

from podline.base.errors import ArtifactError, SourceError
from podline.data.images.opening import open_images
from podline.data.images.settings import ImagesSettings
from podline.data.sources import remote
from podline.data.sources.decoding import DECODING, Engine
from podline.data.sources.opening import open_source
from podline.data.sources.source import Source
from podline.recipes import datasets
from podline.store.buckets import split_uri
from podline.store.contract import Listed
from podline.store.opening import open_store

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.mark.parametrize(
    ("dataset", "write"), [("cifar10", write_cifar10_bins), ("mnist", partial(write_mnist, packed=False))]
)
def test_plain_files_are_downloaded_once(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, dataset: str, write: Callable[[Path], Path]
) -> None:
    raw = write(tmp_path / "raw")
    uri = upload(raw, f"{gcs_root}raw data")
    source = open_source(dataset, uri, tmp_path / "work")
    same_content(source, open_source(dataset, str(raw), tmp_path / "work2"))
    assert sum(proxy.downloaded.values()) == sum(path.stat().st_size for path in raw.iterdir())
    proxy.downloaded.clear()
    again = open_source(dataset, uri, tmp_path / "work").splits[1]
    assert len(again.read(np.arange(2))["image"]) == 2
    assert not proxy.downloaded


def content(source: Source) -> tuple[object, ...]:
    pixels = [source.pixels(split.kept).tobytes() for split in source.splits]
    return source.files, source.sizes, source.counted, people_in(source), pixels


def test_images_and_annotations_are_downloaded_once(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy
) -> None:
    raw = CocoFiles("val", 3, 101).write(tmp_path / "raw", zipped=True)
    CocoFiles("train", 6).write(raw, zipped=True)
    needed = sum(path.stat().st_size for path in raw.iterdir())
    (raw / "test2017.zip").write_bytes(bytes(1_000_000))
    uri = upload(raw, f"{gcs_root}coco")
    found, expected = open_coco(uri, tmp_path / "work"), open_coco(raw, tmp_path / "work2")
    assert content(found) == content(expected)
    assert sum(proxy.downloaded.values()) == needed
    proxy.downloaded.clear()
    assert content(open_coco(uri, tmp_path / "work")) == content(found)
    assert not proxy.downloaded


def test_a_file_that_changes_after_it_was_looked_at_is_refused_by_name(
    tmp_path: Path, gcs_root: str, proxy: fault_proxy.FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = upload(write_cifar10_bins(tmp_path / "raw"), f"{gcs_root}raw")
    listed = remote.objects_of(uri)
    upload(write_cifar10_bins(tmp_path / "raw", rows=5), uri)
    monkeypatch.setattr(remote, "objects_of", lambda _uri: listed)
    with pytest.raises(ArtifactError, match=r"raw/.* has generation \d+ now, but had \d+ when it was first read"):
        open_source("cifar10", uri, tmp_path / "work")


def test_only_new_images_of_a_bucket_are_decoded(tmp_path: Path, gcs_root: str) -> None:
    of_class = {name: {f"{n}.png": encoded(drawn(9 * at + n)) for n in range(9)} for at, name in enumerate("ab")}
    uri, dataset = upload(as_folders(tmp_path / "raw", of_class), f"{gcs_root}photos"), datasets.find("images")

    def rows() -> int:
        return open_images(dataset, uri, ImagesSettings(side=8), tmp_path / "work").splits[0].pixels.count

    assert rows() == rows() == 18
    for link in (tmp_path / "work" / "remote").rglob("*.png"):
        os.utime(link.resolve())  # as the cache does when another process uses it
    assert rows() == 18
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "new.png").write_bytes(encoded(drawn(100)))
    upload(tmp_path / "more", f"{gcs_root}photos/a")
    assert rows() == 19


def test_images_that_an_engine_left_in_the_bucket_are_downloaded_for_this_machine(
    tmp_path: Path, gcs_root: str
) -> None:
    of_class = {name: {f"{n}.png": encoded(drawn(9 * at + n)) for n in range(9)} for at, name in enumerate("ab")}
    uri, work = upload(as_folders(tmp_path / "raw", of_class), f"{gcs_root}photos"), tmp_path / "work"
    engine = DECODING.set(cast("Engine", object()))  # only listed here: not called
    with remote.on_this_machine(uri, work) as place:
        assert not (place / "a" / "0.png").is_symlink()
    DECODING.reset(engine)
    source = open_images(datasets.find("images"), uri, ImagesSettings(side=8), work)
    assert (sum(source.sizes.values()), source.quarantined) == (18, ())


@pytest.mark.parametrize("end", ["", "/"])
def test_a_whole_bucket_is_a_source(gcs_root: str, end: str) -> None:
    open_store(gcs_root).publish_bytes("some/thing", b"x")
    bucket, prefix = split_uri(gcs_root)
    assert f"{prefix}/some/thing" in [found.name for found in remote.objects_of(f"gs://{bucket}{end}")[1]]


def test_objects_whose_names_lead_out_of_the_source_are_refused(
    tmp_path: Path, gcs_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as ``../../../a.png``, in the bucket of someone else: an engine's conversion writes placeholders."""
    outside, bad = tmp_path / "a.png", Listed("../../../a.png", 1, 0.0, "1")
    outside.write_bytes(b"mine")
    monkeypatch.setattr(remote, "objects_of", lambda _uri: (open_store(gcs_root), iter([bad])))
    engine = DECODING.set(cast("Engine", object()))
    with pytest.raises(ArtifactError, match=r"a\.png' leads out of the store"):
        remote.on_this_machine(gcs_root, tmp_path / "work").__enter__()
    DECODING.reset(engine)
    assert outside.read_bytes() == b"mine"


def test_links_into_a_cache_that_was_moved_are_replaced(tmp_path: Path, gcs_root: str) -> None:
    uri, work = upload(write_cifar10_bins(tmp_path / "raw"), f"{gcs_root}raw"), tmp_path / "work"
    with remote.on_this_machine(uri, work) as place:
        link = place / "test_batch.bin"
    copy = link.readlink()
    link.unlink()
    link.symlink_to(tmp_path / "moved")
    open_source("cifar10", uri, work)
    assert link.readlink() == copy


def test_a_bucket_with_nothing_that_fits_says_what_it_has(tmp_path: Path, gcs_root: str) -> None:
    open_store(gcs_root).publish_bytes("some/thing", b"x")
    with pytest.raises(SourceError, match=r"gs://.* contains some, but no file that this data set needs"):
        open_source("cifar10", gcs_root, tmp_path / "work")
    with pytest.raises(SourceError, match=r"nothing does not exist: no object has this name or this prefix"):
        open_source("cifar10", f"{gcs_root}nothing", tmp_path / "work")
    with pytest.raises(SourceError, match=r"gs://.* holds some, expected annotations/person_keypoints_train2017"):
        open_coco(gcs_root, tmp_path / "work")
