"""What stays in the page cache and what does not, asked of the kernel itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from cached_pages import forget

from podline.data.tfrecord import HEADER_BYTES, empty_frames, payloads, read_frames, seal
from podline.errors import ArtifactError, SettingsError
from podline.store import page_cache
from podline.store.page_cache import may_keep

BLOCK = bytes(range(256)) * 4096
SETTING = "PODLINE_PAGE_CACHE"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder on a file system that can forget pages and be asked about it."""
    probe = tmp_path / "probe"
    probe.write_bytes(BLOCK)
    forget(probe)
    return tmp_path


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
