"""Images are decoded in sandboxes: each costs itself at most, and neither a full disk nor a busy machine decides."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_folders, drawn, encoded, images, opened, reasons, records

from podline.base.errors import ChildKilledError, SourceError, StoreError
from podline.data.images import opening
from podline.data.images.items import Place
from podline.data.images.settings import ImagesSettings
from podline.data.sandbox import pool
from podline.data.sources import decoding
from podline.data.sources.decoding import Decoder, DecodeRequest, FittedPictures, Look
from podline.data.sources.source import open_raw
from podline.recipes import datasets

Decoding = Callable[[str], None]
BECOMING = FittedPictures((16, 16, 3), "squeeze", ())


@pytest.fixture
def decoding_with(in_children: None, monkeypatch: pytest.MonkeyPatch) -> Decoding:
    """Children decode with a decoder of decoding_case.py."""
    return lambda maker: monkeypatch.setattr(decoding, "_MAKER", f"decoding_case:{maker}")


def looked_at(folder: Path, *files: bytes) -> list[Look]:
    for at, data in enumerate(files):
        (folder / f"{at}.image").write_bytes(data)
    requests = (DecodeRequest(Place(str(folder / f"{at}.image"))) for at in range(len(files)))
    return decoded(requests, folder / "pixels")


def decoded(requests: Iterable[DecodeRequest], pixels: Path) -> list[Look]:
    pixels.touch()
    with Decoder(BECOMING) as processes:
        return list(processes.looks(((str(pixels), row, request) for row, request in enumerate(requests)), 1.0))


def test_many_images_are_decoded_by_processes_with_the_same_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_folders(tmp_path / "raw", images(150))
    (folder / "cat" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    found = []
    for few in (1, 1_000):
        monkeypatch.setattr(pool, "_FEW", few)
        source = opened(folder)
        assert (source.read, len(source.quarantined)) == (151, 1)
        found.append(records(source))
        folder = folder.rename(tmp_path / "moved")
        shutil.rmtree(tmp_path / "work")
    assert found[0] == found[1]


def test_a_full_disk_is_no_matter_of_the_source(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))  # of a file; a part of the pixels fits
    try:
        with pytest.raises(StoreError, match=r"cannot write .*pixels"):
            opened(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(records(opened(folder))) == 60


def test_a_member_that_is_gone_is_no_damaged_image(tmp_path: Path) -> None:
    archive = tmp_path / "part.tar"
    archive.write_bytes(encoded(drawn(1)))
    place = Place(str(archive), 0, archive.stat().st_size + 10)
    with pytest.raises(SourceError, match=r"cannot read .*part.tar: 10 bytes fewer"):
        decoded([DecodeRequest(place)], tmp_path / "pixels")


def test_an_image_that_takes_too_much_costs_itself(tmp_path: Path, decoding_with: Decoding) -> None:
    noise = np.resize(np.random.default_rng(0).integers(0, 256, 10_007, np.uint8), (3000, 3000, 3))
    decoding_with("limited_decoder")
    first, second, third = looked_at(tmp_path, encoded(drawn(1)), encoded(noise, "JPEG"), encoded(drawn(2)))
    assert not first.reason + third.reason
    assert re.search("MB of memory.*parse_limits", second.reason)
    assert second.picture


def test_a_crash_of_a_decoder_costs_its_image(tmp_path: Path, decoding_with: Decoding) -> None:
    decoding_with("crashing_decoder")
    folder = as_folders(tmp_path / "raw", images(12))
    (folder / "cat/crash.png").write_bytes(encoded(drawn(99, (7, 7))))
    assert "crashes its parser" in reasons(opened(folder))["cat/crash.png"]


def test_a_damaged_image_is_confirmed_with_higher_limits(tmp_path: Path, decoding_with: Decoding) -> None:
    """OpenCV and Pillow report a lack of memory as damage at times."""
    decoding_with("damaged_at_first")
    look, damaged = looked_at(tmp_path, encoded(drawn(1)), encoded(drawn(1))[:-30] + bytes(30))
    assert not look.reason
    assert "damaged" in damaged.reason


def test_memory_of_another_reader_is_no_matter_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_given: object) -> None:
        raise MemoryError

    monkeypatch.setattr(opening, "open_images", read)
    with pytest.raises(ChildKilledError, match="out of memory while here is read"):
        open_raw(datasets.find("images"), "here", ImagesSettings(), tmp_path)
