"""Files made from others are made once, whole, and again where they are damaged."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from podline.base.errors import SourceError, StoreError
from podline.data.rawfiles import RawFile, made_once, raw_file
from podline.store import digests
from podline.store.contract import explained


def written(folder: Path, name: str, content: bytes) -> RawFile:
    with explained("write", folder / name):
        (folder / name).write_bytes(content)
    return raw_file(name, folder / name)


class Maker:
    """Writes two files, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> list[RawFile]:
        self.calls += 1
        (folder / "deep").mkdir()
        return [written(folder, "one", b"111"), written(folder, "deep/two", b"22")]


def contents(files: tuple[RawFile, ...]) -> dict[str, bytes]:
    for file in files:
        assert (file.bytes, file.sha256) == (file.path.stat().st_size, digests.of_file(file.path))
    return {file.name: file.path.read_bytes() for file in files}


def test_files_are_made_once(tmp_path: Path) -> None:
    make = Maker()
    first = made_once(tmp_path / "work", "key", make)
    assert contents(first) == {"one": b"111", "deep/two": b"22"}
    assert made_once(tmp_path / "work", "key", make) == first
    assert make.calls == 1
    made_once(tmp_path / "work", "other key", make)
    assert make.calls == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "one").write_bytes(b"112"),
        lambda folder: (folder / "deep/two").unlink(),
        lambda folder: (folder / "files.json").write_text("[{"),
        lambda folder: (folder / "files.json").write_text('[{"name": 1}]'),
    ],
)
def test_damaged_files_are_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    make = Maker()
    made_once(tmp_path, "key", make)
    damage(tmp_path / "key")
    assert contents(made_once(tmp_path, "key", make)) == {"one": b"111", "deep/two": b"22"}
    assert make.calls == 2


def test_one_who_is_overtaken_takes_what_is_there(tmp_path: Path) -> None:
    def make(folder: Path) -> list[RawFile]:
        assert contents(made_once(tmp_path, "key", Maker())) == {"one": b"111", "deep/two": b"22"}
        return Maker()(folder)

    assert contents(made_once(tmp_path, "key", make)) == {"one": b"111", "deep/two": b"22"}
    assert sorted(path.name for path in (tmp_path / "key").iterdir()) == ["deep", "files.json", "one"]
    assert not list((tmp_path / ".podline" / "tmp").iterdir())


def test_a_failure_or_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> list[RawFile]:
        written(folder, "one", b"1")
        raise SourceError("no good")

    def make(folder: Path) -> list[RawFile]:
        return [written(folder, "one", bytes(150_000))]

    with pytest.raises(SourceError, match="no good"):
        made_once(tmp_path, "key", fail)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))  # of a file: a write fails in the middle
    try:
        with pytest.raises(StoreError, match=r"cannot write .*one: File too large"):
            made_once(tmp_path, "key", make)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "key").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        made_once(tmp_path / "file", "key", Maker())
