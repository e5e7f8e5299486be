"""Images are decoded in sandboxes and once, whatever crashes, fills a disk, kills a reading or changes beside them."""

from __future__ import annotations

import multiprocessing
import random
import re
import resource
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_folders, drawn, encoded, images, opened, reasons, records, write_tar

from podline.base.errors import ChildKilledError, SourceError, StoreError
from podline.data.decoded_rows import PIXELS
from podline.data.images import decoded, opening
from podline.data.images.items import Place
from podline.data.images.settings import ImagesSettings
from podline.data.rawfiles import FACTS
from podline.data.sandbox import pool
from podline.data.sources import decoding
from podline.data.sources.decoding import Decoder, DecodeRequest, FittedPictures, Look
from podline.data.sources.source import open_raw
from podline.recipes import datasets
from podline.store import uses

Decoding = Callable[[str], None]
BECOMING = FittedPictures((16, 16, 3), "squeeze")


@pytest.fixture
def decoding_with(in_children: None, monkeypatch: pytest.MonkeyPatch) -> Decoding:
    """Children decode with a decoder of decoding_case.py."""
    return lambda maker: monkeypatch.setattr(decoding, "_MAKER", f"decoding_case:{maker}")


def looked_at(folder: Path, *files: bytes) -> list[Look]:
    for at, data in enumerate(files):
        (folder / f"{at}.image").write_bytes(data)
    requests = (DecodeRequest(Place(str(folder / f"{at}.image"))) for at in range(len(files)))
    return looks_of(requests, folder / "pixels")


def looks_of(requests: Iterable[DecodeRequest], pixels: Path) -> list[Look]:
    pixels.touch()
    with Decoder(BECOMING) as processes:
        return list(processes.looks(((str(pixels), row, request) for row, request in enumerate(requests)), 1.0))


def test_many_images_are_decoded_by_processes_with_the_same_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = as_folders(tmp_path / "raw", images(60))
    (folder / "cat" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    found = []
    for few in (1, 1_000):
        monkeypatch.setattr(pool, "_FEW", few)
        source = opened(folder)
        assert (source.read, len(source.quarantined)) == (61, 1)
        found.append(records(source))
        folder = folder.rename(tmp_path / "moved")
        shutil.rmtree(tmp_path / "work")
    assert found[0] == found[1]


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_a_zip_file_is_left_out_alone(tmp_path: Path, packing: int) -> None:
    path = tmp_path / "images.zip"
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name in ("ä.png", "b.png"):
            archive.writestr(name, encoded(drawn(1)))
    damaged = bytearray(path.read_bytes())
    damaged[30:50] = b"\xff" * 20  # the first member's name, and the beginning of its content
    path.write_bytes(damaged)
    requests = [DecodeRequest(Place(str(path), member=name)) for name in ("ä.png", "b.png")]
    bad, good = (look.reason for look in looks_of(requests, tmp_path / "pixels"))
    assert bad.startswith("cannot be read from images.zip: ")
    assert not good


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
    with pytest.raises(SourceError, match=r"cannot read .*part.tar: the file has become 10 bytes shorter"):
        looks_of([DecodeRequest(place)], tmp_path / "pixels")


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


PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, parsed_here: None) -> list[str]:
    """The files that are decoded, here."""
    found, looks = list[str](), Decoder.looks

    def noted(self: Decoder, asked: Iterable[tuple[str, int, DecodeRequest]], factor: float) -> Iterator[Look]:
        def each() -> Iterator[tuple[str, int, DecodeRequest]]:
            for one in asked:
                found.append(Path(one[2].place.path).name)  # type: ignore[union-attr]
                yield one

        return looks(self, each(), factor)

    monkeypatch.setattr(Decoder, "looks", noted)
    return found


def anew(folder: Path, name: str, **settings: object) -> list[tuple[str, str, bytes]]:
    """Records of a source without a cache."""
    (folder / name).mkdir()
    (folder / name / "raw").symlink_to(folder / "raw")
    return records(opened(folder / name / "raw", **settings))


def test_new_files_alone_are_decoded(tmp_path: Path, asked: list[str]) -> None:
    settings = {"keep_jpeg": True}
    folder = as_folders(tmp_path / "raw", images(30))
    (folder / "cat" / "zzz.png").write_bytes(b"\x89PNG\r\n\x1a\n")  # the last one, which cannot be decoded
    opened(folder, **settings)
    asked.clear()
    (folder / "cat" / "000.png").unlink()
    (folder / "cat" / "aaa.png").write_bytes(encoded(drawn(100)))
    (folder / "cat" / "003.bmp").rename(folder / "日本 dog" / "003.bmp")
    first = opened(folder, **settings)
    assert sorted(asked) == ["003.bmp", "aaa.png", "zzz.png"]  # a move is a change: it has another path
    (folder / "cat" / "bbb.png").write_bytes(encoded(drawn(101)))
    asked.clear()
    second = opened(folder, **settings)
    assert sorted(asked) == ["bbb.png", "zzz.png"]
    assert records(second) == anew(tmp_path, "other", **settings)
    assert (second.files, second.near) != (first.files, None)


@pytest.mark.parametrize("ending", ["tar", "tgz"])
def test_images_inside_archives_are_decoded_once(tmp_path: Path, asked: list[str], ending: str) -> None:
    opened(write_tar(tmp_path / "raw" / f"one.{ending}", members(range(30))))
    assert len(asked) == 30
    source = opened(write_tar(tmp_path / "raw" / f"two.{ending}", members(range(30, 40))))
    assert (len(asked), len(source.images)) == (40, 40)
    assert records(source) == anew(tmp_path, "other")


def members(numbers: Iterable[int]) -> dict[str, bytes]:
    files = {"png": lambda number: encoded(drawn(number)), "cls": lambda number: str(number % 2).encode()}
    return {f"{number:03}.{kind}": file(number) for number in numbers for kind, file in files.items()}


def test_most_dead_rows_are_left_behind(tmp_path: Path, asked: list[str]) -> None:
    """One who reads them keeps them."""
    folder = as_folders(tmp_path / "raw", images(60))
    reader = opened(folder)
    expected = records(reader)
    for share, rows in ((3, 60), (2, 20)):
        for file in sorted(folder.glob("*/*"))[::share]:
            file.unlink()
        opened(folder)
        assert records(reader) == expected
        process_ends()
        source = opened(folder)
        [pixels] = (tmp_path / "work").glob(f"*/{PIXELS}")
        assert pixels.stat().st_size == rows * (16 * 16 * 3 + 4)
    assert len(asked) == 80
    assert records(source) == anew(tmp_path, "other")


def process_ends() -> None:
    for lease in uses._leases.values():
        lease.close()


def test_a_flipped_bit_reaches_no_record(tmp_path: Path, asked: list[str]) -> None:
    folder = as_folders(tmp_path / "raw", images(30))
    expected = records(opened(folder))
    [table], [facts], [pixels] = ([*(tmp_path / "work").glob(f"*/{name}")] for name in ("*.arrow", FACTS, PIXELS))
    asked.clear()
    flip(table, table.stat().st_size // 2)
    assert (records(opened(folder)), asked) == (expected, [])  # it is listed again
    flip(facts, 100)
    (folder / "cat" / "bad.png").write_bytes(b"")
    assert records(opened(folder)) == expected
    assert len(asked) == 2, "the image whose facts are damaged is decoded again"
    flip(pixels, pixels.stat().st_size // 2)
    with pytest.raises(SourceError, match="decoded images are damaged; delete this folder and convert again"):
        records(opened(folder))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def read_slowly(folder: Path) -> None:
    decoded._KEPT = 8
    opened(folder)


def decoded_twice(work: Path) -> int:
    """How many rows have the stamp of another one."""
    [facts] = work.glob(f"*/{FACTS}")
    stored = np.fromfile(facts, np.uint8).reshape(-1, decoded._FACTS.itemsize + 4)
    stamps = stored[:, :8].copy().view(np.int64)[:, 0]
    return sum(count - 1 for stamp, count in Counter(stamps.tolist()).items() if stamp)


@pytest.mark.parametrize("kills", [3, pytest.param(51, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_killed_reading_goes_on(tmp_path: Path, kills: int) -> None:
    folder, chance = as_folders(tmp_path / "raw", images(180)), random.Random(0)
    started = time.monotonic()
    expected = anew(tmp_path, "other")
    seconds = time.monotonic() - started
    for _ in range(kills // 3):
        for _ in range(3):
            process = PROCESSES.Process(target=read_slowly, args=(folder,))
            process.start()
            process.join(chance.random() * seconds)
            process.kill()
            process.join()
        source = opened(folder)  # at once: children of the killed process may still write
        assert records(source) == expected
        assert decoded_twice(tmp_path / "work") == 0
        assert not [*(tmp_path / "work" / ".podline").glob("tmp/*")]
        process_ends()
        shutil.rmtree(tmp_path / "work")


def test_two_processes_at_once_share_the_work(tmp_path: Path) -> None:
    folder = as_folders(tmp_path / "raw", images(120))
    processes = [PROCESSES.Process(target=read_slowly, args=(folder,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert decoded_twice(tmp_path / "work") == 0
    assert records(opened(folder)) == anew(tmp_path, "other")
