"""An archive gives the wanted files within limits or is refused by name; files made from others are made once."""

from __future__ import annotations

import gzip
import resource
import struct
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from published import write_archive

from podline.base.errors import SourceError, StoreError
from podline.data import bounds
from podline.data.rawfiles import RawFile, delete_unused, made_once, raw_file
from podline.data.sources import archives
from podline.data.sources.archives import decompress, in_child, unpack
from podline.store import digests
from podline.store.contract import explained

WANTED = {"data_batch_1", "test_batch"}
GOOD = {"cifar/data_batch_1": b"one" * 5000, "cifar/readme.html": b"<p>", "./cifar/test_batch": b"two"}
UNPACKED = {"cifar/data_batch_1": b"one" * 5000, "cifar/test_batch": b"two"}


def member(name: str, **header: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in header.items():
        setattr(info, key, value)
    return info, b""


def files_below(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(archive: Path, folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        unpack(archive, WANTED, folder)
    assert str(archive) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_wanted_files_are_unpacked_with_their_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a child, within limits."""
    archive, out = write_archive(tmp_path / "a.tar.gz", GOOD), tmp_path / "out"
    assert unpack(archive, WANTED, tmp_path / "here") == [*UNPACKED]
    assert [(file.name, file.path, file.bytes, file.sha256) for file in in_child(unpack, archive, WANTED, out)] == [
        (name, out / name, len(data), digests.of_bytes(data)) for name, data in UNPACKED.items()
    ]
    assert files_below(out) == UNPACKED
    monkeypatch.setattr(archives, "_MEMORY", 10_000)
    with pytest.raises(SourceError, match=r"a\.tar\.gz takes more than .* of memory to read"):
        in_child(unpack, archive, WANTED, tmp_path / "again")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (member("../x"), "OutsideDestinationError: '../x' would be extracted to"),
        (member("data_batch_1", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "AbsoluteLinkError: 'data_batch_1' is"),
        (member("x", type=tarfile.LNKTYPE, linkname="../data_batch_1"), "LinkOutsideDestinationError"),
        (member("data_batch_1", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "SpecialFileError"),
        (member(f"{'ü' * 130}/data_batch_1"), "its name has 273 bytes vs 255 at most, its content 0 bytes vs"),
        (
            member("data_batch_1", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**31)}),
            "is sparse or too large: its name has 12 bytes",
        ),
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_a_hostile_member_refuses_the_archive(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], told: str, place: int
) -> None:
    members = [(member(title, size=len(data))[0], data) for title, data in GOOD.items()]
    members.insert(place, bad)
    archive = write_archive(tmp_path / "a.tar.gz", members)
    assert told in refused(archive, tmp_path / "deep" / "out")
    assert files_below(tmp_path).keys() - {f"deep/out/{name}" for name in UNPACKED} == {"a.tar.gz"}


def test_a_link_or_an_absolute_name_within_the_folder_does_no_harm(tmp_path: Path) -> None:
    members = [member("/x/test_batch"), member("data_batch_1", type=tarfile.SYMTYPE, linkname="x/test_batch")]
    unpack(write_archive(tmp_path / "a.tar.gz", members), WANTED, tmp_path / "out")
    assert files_below(tmp_path / "out") == {"x/test_batch": b""}


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """A tar header with any size field, which tarfile itself would not write."""
    block = bytearray(name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0"))
    block += b"00000000000\0" + b" " * 8 + kind + b"\0" * 100 + b"ustar\x0000" + b"\0" * 247
    block[148:156] = b"%06o\0 " % sum(block)
    assert len(block) == 512
    return bytes(block)


@pytest.mark.parametrize("kind", [b"0", b"L", b"x", b"g", b"S", b"5"])
@pytest.mark.parametrize("size", [-512, -(2**40), 2**33])
@pytest.mark.timeout(20)
def test_header_sizes_that_lead_astray(tmp_path: Path, kind: bytes, size: int) -> None:
    """Sizes in base 256 may be negative: following one backwards would never end; a large one would fill memory."""
    field = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
    content = header(b"first", b"0\0") + header(b"data_batch_1", field, kind) + b"x" * 1024 + bytes(1024)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(content))
    tracemalloc.start()
    try:
        refused(tmp_path / "a.tar.gz", tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("names", [["./data_batch_1", "data_batch_1"], ["test_batch", "test_batch/test_batch"]])
def test_one_name_is_one_file(tmp_path: Path, names: list[str]) -> None:
    archive = write_archive(tmp_path / "a.tar.gz", [(member(name, size=1)[0], b"a") for name in names])
    assert f"member {names[1]!r} occurs twice, or as file and folder" in refused(archive, tmp_path / "out")


def test_not_an_archive(tmp_path: Path) -> None:
    chain = (header(b"x", b"00000000001\0", b"L") + b"y" * 512) * 3000
    for content, told in (
        (b"hello", "cannot be read as a .tar.gz: BadGzipFile"),
        (gzip.compress(b"hello"), "cannot be read as a .tar.gz: ReadError"),
        (gzip.compress(chain + bytes(1024)), "RecursionError"),
    ):
        (tmp_path / "a.tar.gz").write_bytes(content)
        assert told in refused(tmp_path / "a.tar.gz", tmp_path / "out")
    assert "No such file" in refused(tmp_path / "nowhere", tmp_path / "out")


def test_every_truncation_is_told_and_a_flipped_bit_is_told_or_changes_nothing(tmp_path: Path) -> None:
    content = write_archive(tmp_path / "a.tar.gz", GOOD).read_bytes()
    for length in range(len(content)):
        (tmp_path / "a.tar.gz").write_bytes(content[:length])
        refused(tmp_path / "a.tar.gz", tmp_path / "out")
        flipped = bytearray(content)
        flipped[length] ^= 1 << length % 8
        (tmp_path / "a.tar.gz").write_bytes(flipped)
        with suppress(SourceError):
            unpack(tmp_path / "a.tar.gz", WANTED, tmp_path / "flipped")
            # gzip's own header holds a time and a name, which mean nothing.
            assert files_below(tmp_path / "flipped") == UNPACKED


def test_gzip_file(tmp_path: Path) -> None:
    packed = gzip.compress(b"abc" * 1000) + gzip.compress(b"d")  # two members, as pigz or cat make them
    (tmp_path / "x.gz").write_bytes(packed)
    assert decompress(tmp_path / "x.gz", "x", tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"abc" * 1000 + b"d"
    for content, told in (
        (packed[:-8] + struct.pack("<I", 1) + packed[-4:], "CRC check failed"),
        (packed[:-4], "Compressed file ended before"),
        (packed + b"more", "BadGzipFile"),
    ):
        (tmp_path / "x.gz").write_bytes(content)
        with pytest.raises(SourceError, match=told):
            decompress(tmp_path / "x.gz", "x", tmp_path)


@pytest.mark.parametrize("name", ["data_batch_1", "passed over"])
def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By a tar's header, and after its last member, where no header says it; and of gzip alone."""
    monkeypatch.setattr(bounds, "UNPACKED_FREE", 5_000_000)
    archive = write_archive(tmp_path / "a.tar.gz", {name: bytes(30_000_000)})
    assert "its content 30,000,000 bytes vs 5," in refused(archive, tmp_path / "out")
    assert files_below(tmp_path / "out") == {}
    plain = gzip.decompress(write_archive(tmp_path / "a.tar.gz", GOOD).read_bytes())
    archive.write_bytes(gzip.compress(plain + bytes(30_000_000)))
    assert "unpacks to more than 5," in refused(archive, tmp_path / "out")
    with pytest.raises(SourceError, match=r"unpacks to more than 5,\d+,\d+ bytes, far more than images would"):
        decompress(archive, "x", tmp_path)
    assert (tmp_path / "x").stat().st_size <= 5_600_000


def written(folder: Path, name: str, content: bytes) -> RawFile:
    with explained("write", folder / name):
        (folder / name).write_bytes(content)
    return raw_file(name, folder / name)


FILES = {"one": b"111", "deep/two": b"22"}


def made(folder: Path) -> list[RawFile]:
    (folder / "deep").mkdir()
    return [written(folder, *file) for file in FILES.items()]


def contents(files: tuple[RawFile, ...]) -> dict[str, bytes]:
    for file in files:
        assert (file.bytes, file.sha256) == (file.path.stat().st_size, digests.of_file(file.path))
    return {file.name: file.path.read_bytes() for file in files}


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "one").write_bytes(b"112"),
        lambda folder: (folder / "deep/two").unlink(),
        lambda folder: (folder / "files.json").write_text("[{"),
        lambda folder: (folder / "files.json").write_text('[{"name": 1}]'),
    ],
)
def test_files_are_made_once_until_they_are_damaged(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    make = Mock(side_effect=made)
    first = made_once(tmp_path / "work", "key", make)
    assert contents(first) == FILES
    assert made_once(tmp_path / "work", "key", make) == first
    assert make.call_count == 1
    damage(tmp_path / "work" / "key")
    assert contents(made_once(tmp_path / "work", "key", make)) == FILES
    made_once(tmp_path / "work", "other key", make)
    assert make.call_count == 3


def test_one_who_is_overtaken_takes_what_is_there(tmp_path: Path) -> None:
    def make(folder: Path) -> list[RawFile]:
        assert contents(made_once(tmp_path, "key", made)) == FILES
        return made(folder)

    assert contents(made_once(tmp_path, "key", make)) == FILES
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
        made_once(tmp_path / "file", "key", made)


def test_a_cache_folder_that_another_process_deleted_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "work" / "key"
    folder.mkdir(parents=True)
    assert [delete_unused(folder), delete_unused(folder)] == [True, True]
    assert not folder.exists()
