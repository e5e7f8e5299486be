"""Processes that help to look at images: they give what is found without them, whatever becomes of them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coco_files import CocoFiles, jpeg

from podline.data.sources import lookers as module
from podline.data.sources.coco import CocoSource, open_coco
from podline.data.sources.image_files import ImageFile, Seen, seen_in_a_row
from podline.data.sources.lookers import Lookers
from podline.supervision.processes import parent

STARTED_AND_WAITING = """
from podline.data.sources import lookers
lookers._FILES_FOR_ONE = 1
with lookers.Lookers() as some:
    some.start(2)
    print(*(process.pid for process in some._processes), flush=True)
    input()
"""


@pytest.fixture
def files(tmp_path: Path) -> list[ImageFile]:
    """Twenty images, of which one is no image, and one is gone."""
    found = []
    for number in range(20):
        path = tmp_path / f"{number}.jpg"
        content = b"nothing" if number == 3 else jpeg(number)
        path.write_bytes(content)
        found.append(ImageFile(str(path), len(content), None, 0, deflated=False))
    Path(found[7].path).unlink()
    return found


@pytest.fixture
def any_number_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILES_FOR_ONE", 1)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)


def opened(folder: Path) -> CocoSource:
    return open_coco("coco", str(folder), 64, 3)


def test_without_helpers_the_caller_looks(files: list[ImageFile]) -> None:
    with Lookers() as lookers:
        assert lookers.see(files) == seen_in_a_row(files)


def test_few_files_are_worth_no_process_and_more_are_never_more_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    with Lookers() as lookers:
        assert lookers.start(1_999) == 0
        assert lookers.start(2_000) == 1
        assert lookers.start(10**9) == 2
        assert lookers.start(0) == 2  # they are there
        processes = lookers._processes
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.usefixtures("any_number_is_worth_it")
def test_threads_get_from_processes_what_they_would_find_themselves(files: list[ImageFile]) -> None:
    expected = seen_in_a_row(files)
    assert [place for place, what in enumerate(expected) if what is None] == [7]
    assert expected[3] is not None
    assert expected[3].problem.startswith("is no JPEG")
    with Lookers() as lookers, ThreadPoolExecutor(3) as pool:
        assert lookers.start(2) == 2
        for found in pool.map(lookers.see, [files] * 20):
            assert found == expected


@pytest.mark.usefixtures("any_number_is_worth_it")
def test_a_helper_that_dies_is_made_up_for(files: list[ImageFile]) -> None:
    with Lookers() as lookers:
        lookers.start(2)
        assert lookers.see(files) == seen_in_a_row(files)
        for process in lookers._processes:
            process.kill()
            process.wait()
        for _ in range(3):
            assert lookers.see(files) == seen_in_a_row(files)


@pytest.mark.usefixtures("any_number_is_worth_it")
def test_a_helper_that_is_stopped_in_the_middle_of_an_answer_is_made_up_for(files: list[ImageFile]) -> None:
    with Lookers() as lookers, ThreadPoolExecutor(1) as pool:
        assert lookers.start(1) == 1
        [process] = lookers._processes
        process.send_signal(signal.SIGSTOP)
        answer = pool.submit(lookers.see, files)
        time.sleep(0.2)
        assert not answer.done()
        process.kill()
        assert answer.result(60) == seen_in_a_row(files)


@pytest.mark.usefixtures("any_number_is_worth_it")
def test_a_helper_that_cannot_be_started_is_done_without(
    files: list[ImageFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_args: object, **_options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with Lookers() as lookers:
        assert lookers.start(2) == 0
        assert lookers.see(files) == seen_in_a_row(files)


@pytest.mark.usefixtures("any_number_is_worth_it")
def test_modules_of_the_users_folder_are_none_of_a_helpers(
    tmp_path: Path, files: list[ImageFile], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    with Lookers() as lookers:
        assert lookers.start(1) == 1
        assert lookers.see(files) == seen_in_a_row(files)
        assert lookers._processes[0].poll() is None
    assert capfd.readouterr().err == ""


def test_helpers_end_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTED_AND_WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        helpers = [int(number) for number in process.stdout.readline().split()]
        assert helpers
        assert all(parent(helper) == process.pid for helper in helpers)
        process.kill()
    deadline = time.monotonic() + 240
    while any(parent(helper) is not None for helper in helpers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_source_is_the_same_with_helpers_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool
) -> None:
    CocoFiles("val", 6, 101).write(tmp_path, zipped=zipped)
    files = CocoFiles("train", 40)
    files.files["000000000003.jpg"] = jpeg(3)[:-100]
    files.files["000000000004.jpg"] = b"nothing"
    del files.files["000000000005.jpg"]
    files.write(tmp_path, zipped=zipped)
    alone = opened(tmp_path)
    monkeypatch.setattr(module, "_FILES_FOR_ONE", 1)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    asked: list[int] = []
    see = Lookers.see

    def see_and_count(lookers: Lookers, files: Sequence[ImageFile | None]) -> list[Seen | None]:
        asked.append(len(files) - list(files).count(None))
        return see(lookers, files)

    monkeypatch.setattr(Lookers, "see", see_and_count)
    assert opened(tmp_path) == alone
    assert sum(asked) == 45
    assert {one.record for one in alone.quarantined} == {
        f"00000000000{number}.jpg (image {number})" for number in (3, 4, 5)
    }
