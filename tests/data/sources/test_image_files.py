"""Files of images on this machine: what is read of them, what the disk is asked for, and a helper's answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cached_pages import forget, is_cached
from coco_files import HEIGHT, WIDTH, jpeg

from podline.data.sources import image_files
from podline.data.sources.image_files import ImageFile, MemberError, seen, seen_in_a_row

PADDING = b"padding" * 300_000


@pytest.fixture
def alone(tmp_path: Path) -> ImageFile:
    """An image's file of its own."""
    path = tmp_path / "1.jpg"
    path.write_bytes(jpeg(1))
    return ImageFile(str(path), len(jpeg(1)), None, 0, deflated=False)


@pytest.fixture(params=[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def member(tmp_path: Path, request: pytest.FixtureRequest) -> ImageFile:
    """An image's file between others in a zip file."""
    path = tmp_path / "train.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("before", PADDING)
        archive.writestr("1.jpg", jpeg(1), request.param)
        archive.writestr("after", PADDING)
        info = archive.getinfo("1.jpg")
    return ImageFile(str(path), len(jpeg(1)), info.header_offset, info.compress_size, info.compress_type != 0)


@pytest.fixture
def helper() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", image_files.__name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


def comes(path: str, place: int) -> bool:
    """Whether a page of a file is in memory in the end, without being read."""
    deadline = time.monotonic() + 240
    while not is_cached(Path(path), place):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_file_and_a_member_are_the_same_image(alone: ImageFile, member: ImageFile) -> None:
    assert alone.read() == member.read() == jpeg(1)
    [first, second] = seen_in_a_row([alone, member])
    assert first == second == seen(jpeg(1))
    assert first is not None
    assert first.jpeg == (WIDTH, HEIGHT, 3, 1)


def test_a_file_that_is_longer_than_it_was_is_read_one_byte_too_far_and_no_further(alone: ImageFile) -> None:
    with Path(alone.path).open("ab") as stream:
        stream.write(PADDING)
    assert alone.read() == jpeg(1) + PADDING[:1]


def test_where_no_member_starts(member: ImageFile) -> None:
    with pytest.raises(MemberError, match="no member starts there"):
        member._replace(offset=1).read()
    with pytest.raises(MemberError, match="no member starts there"):
        member._replace(offset=Path(member.path).stat().st_size - 3).read()


def test_a_member_that_cannot_be_unpacked(member: ImageFile) -> None:
    with Path(member.path).open("r+b") as stream:
        stream.seek(member.offset + 30 + len("1.jpg"))
        stream.write(b"\xff" * 40)
    if member.deflated:
        with pytest.raises(MemberError, match="cannot be unpacked"):
            member.read()
    assert seen_in_a_row([member]) == ([None] if member.deflated else [seen(member.read())])


def test_the_disk_brings_a_file_that_is_expected(alone: ImageFile) -> None:
    with Path(alone.path).open("ab") as stream:
        stream.write(PADDING)
    forget(Path(alone.path))
    alone.expect()
    assert comes(alone.path, len(PADDING) // 2)


def test_of_a_zip_file_the_disk_brings_the_member(member: ImageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _file, start, size, _advice: asked.append((start, start + size)))
    member.expect()
    member._replace(size=4_000_000).expect()  # which comes in large requests by itself
    [(start, stop)] = asked
    assert start == member.offset
    assert member.offset + member.stored < stop < member.offset + member.stored + 1_000


def test_what_cannot_be_expected_is_found_out_by_who_reads_it(
    alone: ImageFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = alone._replace(path=f"{alone.path}.gone")
    gone.expect()
    assert seen_in_a_row([gone, None, alone]) == [None, None, seen(jpeg(1))]
    with pytest.raises(FileNotFoundError):
        gone.read()
    monkeypatch.delattr(os, "posix_fadvise")
    alone.expect()
    assert alone.read() == jpeg(1)


def test_a_helper_answers_line_by_line_and_ends_with_its_input(
    helper: subprocess.Popen[bytes], alone: ImageFile, member: ImageFile
) -> None:
    gone = alone._replace(path=f"{alone.path}.gone\udcff\n")
    assert helper.stdin is not None
    assert helper.stdout is not None
    for files in ([alone, gone, None, member], [], [member]):
        helper.stdin.write(json.dumps(files).encode() + b"\n")
        helper.stdin.flush()
        assert json.loads(helper.stdout.readline()) == json.loads(json.dumps(seen_in_a_row(files)))
    assert helper.communicate(timeout=240) == (b"", b"")
    assert helper.returncode == 0


def test_a_helper_loads_little() -> None:
    code = f"import sys, {image_files.__name__}\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"cv2", "pydantic", "google.cloud.storage", "podline.settings", "podline.store.contract"} & set(loaded)
