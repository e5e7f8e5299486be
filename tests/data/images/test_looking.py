"""Images are decoded by processes: a full disk, too little memory or a decoder without end is no damaged image."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_folders, drawn, encoded, images, opened, records

from podline.data.images import opening
from podline.data.images.items import Place
from podline.data.images.looking import Bench, Lookers
from podline.data.images.settings import ImagesSettings
from podline.data.sources.source import open_raw
from podline.errors import ChildKilledError, SourceError, StoreError
from podline.recipes.datasets import SHIPPED


def test_a_full_disk_is_no_matter_of_the_source(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # of a file; a part of the pixels fits
    try:
        with pytest.raises(StoreError, match=r"cannot write .*pixels"):
            opened(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(records(opened(folder))) == 60


def bench(tmp_path: Path, side: int = 16) -> Bench:
    (tmp_path / "pixels").touch()
    return Bench(str(tmp_path / "pixels"), (side, side, 3), "squeeze")


def test_a_part_that_is_written_is_followed_by_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, start: write(file, data[:100], start))
    desk = bench(tmp_path)
    desk.look_at(0, [encoded(drawn(1, (16, 16)))])
    assert np.array_equal(np.fromfile(desk.pixels, np.uint8), drawn(1, (16, 16)).ravel())


def test_a_member_that_is_gone_is_no_damaged_image(tmp_path: Path) -> None:
    archive = tmp_path / "part.tar"
    archive.write_bytes(encoded(drawn(1)))
    size = archive.stat().st_size
    with Lookers(bench(tmp_path), 1) as lookers:
        assert not lookers.look_at(0, [Place(str(archive), 0, size)])[0].reason
        with pytest.raises(SourceError, match=r"cannot read .*part.tar: 10 bytes fewer"):
            lookers.look_at(0, [Place(str(archive), 0, size + 10)])


@pytest.mark.parametrize("kind", ["PNG", "GIF"])  # one is OpenCV's, the other Pillow's
def test_too_little_memory_is_no_damaged_image(tmp_path: Path, kind: str) -> None:
    large = encoded(np.resize(drawn(1), (5000, 5000, 3)), kind)
    with Lookers(bench(tmp_path), 1) as lookers:
        assert not lookers.look_at(0, [encoded(drawn(1))])[0].reason
        (child,) = lookers.processes
        used = re.search(r"VmData:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
        assert used
        resource.prlimit(child.pid, resource.RLIMIT_DATA, (int(used[1]) * 1024 + 10_000_000,) * 2)
        with pytest.raises(ChildKilledError, match="out of memory while an image of"):
            lookers.look_at(0, [large])
        assert not lookers.look_at(0, [large])[0].reason  # another process, which has more


def test_memory_of_another_reader_is_no_matter_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(opening, "open_images", read)
    with pytest.raises(ChildKilledError, match="out of memory while here is read"):
        open_raw(SHIPPED["images"], "here", ImagesSettings(), tmp_path)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_decoder_that_does_not_end_costs_its_image_alone(tmp_path: Path, kind: str) -> None:
    slow = encoded(np.resize(np.random.default_rng(0).integers(0, 256, 10_007, np.uint8), (5000, 5000, 3)), kind)
    fast = encoded(drawn(1))
    desk = replace(bench(tmp_path), seconds=0.02)
    with Lookers(desk, 1) as lookers:
        first, second, third = lookers.look_at(0, [fast, slow, fast])
    assert not first.reason + third.reason
    assert "0.02 seconds of CPU time" in second.reason
