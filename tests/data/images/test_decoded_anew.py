"""Images of files that did not change are decoded once, whatever else of their source changes, or kills a reading."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from drawn_images import as_folders, drawn, encoded, images, opened, records, write_tar

from podline.base.errors import SourceError
from podline.data.decoded_rows import PIXELS
from podline.data.images import decoded
from podline.data.rawfiles import FACTS
from podline.data.sources.decoding import Decoder, DecodeRequest, Look
from podline.store import uses

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
