"""What stays in the page cache and what does not, asked of the kernel itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from cached_pages import forget, is_cached

from podline.data.sources.coco_sample import write_coco_sample
from podline.data.tfrecord import HEADER_BYTES, empty_frames, payloads, read_frames, seal
from podline.datasets.validation import check_dataset
from podline.documents.manifest import read_manifest
from podline.errors import ArtifactError, SettingsError
from podline.progress import silent
from podline.stages.specs import ConvertSpec
from podline.stages.table import CONVERT
from podline.store import page_cache
from podline.store.opening import open_store
from podline.store.page_cache import Passing, may_keep

BLOCK = bytes(range(256)) * 4096
SETTING = "PODLINE_PAGE_CACHE"


def until_settled() -> None:
    """Waits for the thread that lets go."""
    page_cache._background().submit(int).result()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder on a file system that can forget pages and be asked about it."""
    probe = tmp_path / "probe"
    probe.write_bytes(BLOCK)
    forget(probe)
    return tmp_path


def test_what_is_to_stay_stays_and_what_is_not_goes_as_it_is_written(disk: Path) -> None:
    blocks = 64
    for stays in (True, False):
        path = disk / f"stays-{stays}"
        with path.open("wb") as stream, Passing(stream, stays=stays) as passing:
            for _ in range(blocks):
                stream.write(BLOCK)
                passing.add(len(BLOCK))
            until_settled()
            assert is_cached(path) == stays  # its beginning, though its end is not written
        until_settled()
        assert is_cached(path, (blocks - 1) * len(BLOCK)) == stays
        assert path.read_bytes() == BLOCK * blocks


def frames_in(path: Path, records: int) -> Path:
    frames = empty_frames(records, bytes(4_000))
    payloads(frames)[:, 0] = np.arange(records) % 256
    seal(frames)
    frames.tofile(path)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return path


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_frames_are_read_in_order_and_stay_until_the_next_but_one(tmp_path: Path, step: int) -> None:
    path = frames_in(tmp_path / "shard", records=23)
    found, last = [], None
    for frames in read_frames(path, 4_000, 23, step):
        if last is not None:
            found += last[:, HEADER_BYTES].tolist()  # the block before is still what it was
        last = frames
    assert last is not None
    assert found + last[:, HEADER_BYTES].tolist() == list(range(23))


def test_a_file_that_is_cut_off_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = frames_in(tmp_path / "shard", records=40)
    blocks = read_frames(path, 4_000, 40, 1)
    next(blocks)
    os.truncate(path, 4_016 * 20)
    with pytest.raises(ArtifactError, match=r"shard was cut off while it was read; convert the data again$"):
        list(blocks)


def test_a_disk_that_fails_is_noticed_while_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    path = tmp_path / "file"

    def write() -> None:
        with path.open("wb") as stream, Passing(stream, stays=False) as passing:
            for _ in range(64):
                stream.write(BLOCK)
                passing.add(len(BLOCK))

    with pytest.raises(OSError, match="Input/output error"):
        write()


def test_half_of_memory_may_stay_or_as_much_as_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(page_cache, "_CONTAINERS_LIMIT", tmp_path / "none")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert may_keep(physical // 2)
    assert not may_keep(physical // 2 + 1)
    for limit in ("max\n", f"{2 * physical}\n"):
        (tmp_path / "limit").write_text(limit)
        monkeypatch.setattr(page_cache, "_CONTAINERS_LIMIT", tmp_path / "limit")
        assert may_keep(physical // 2)
    (tmp_path / "limit").write_text("1000\n")
    assert may_keep(500)
    assert not may_keep(501)
    monkeypatch.setenv(SETTING, "100")
    assert may_keep(100)
    assert not may_keep(101)
    monkeypatch.setenv(SETTING, "-1")
    with pytest.raises(SettingsError, match=r"page_cache = '-1'"):
        may_keep(1)


def test_without_the_call_everything_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "0")
    monkeypatch.delattr(os, "posix_fadvise")
    assert may_keep(10**18)


@pytest.mark.parametrize("keep_jpeg", [False, True])
def test_a_data_set_past_the_cache_has_the_same_bytes_and_leaves_nothing(
    disk: Path, monkeypatch: pytest.MonkeyPatch, keep_jpeg: bool
) -> None:
    source, folders = str(write_coco_sample(disk / "people", train=12, test=4)), {}
    for limit in ("0", "1000000000"):
        monkeypatch.setenv(SETTING, limit)
        spec = ConvertSpec(root=str(disk / limit), dataset="coco_sample", source=source, side=96, keep_jpeg=keep_jpeg)
        spec = spec.model_copy(update={"allow_left_out": 1})
        result = CONVERT.run(spec, silent())
        until_settled()
        folders[limit] = disk / limit / result.folder
        shards = sorted(folders[limit].glob("*.tfrecord*"))
        assert {is_cached(shard) for shard in shards} == {limit != "0"}
        store = open_store(spec.root)
        assert all(shard.read_bytes() for shard in shards)  # from the disk, where they were let go
        assert check_dataset(store, result.folder, read_manifest(store, result.folder), silent()) == 0
        assert {is_cached(shard) for shard in shards} == {limit != "0"}
    names = [sorted(path.name for path in folder.iterdir() if path.is_file()) for folder in folders.values()]
    assert names[0] == names[1]
    for name in names[0]:
        assert (folders["0"] / name).read_bytes() == (folders["1000000000"] / name).read_bytes()
