"""Small files that cost much, each at a small scale: bounds.py says what they may cost."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from coco_files import HEIGHT, WIDTH, CocoFiles, jpeg, open_coco
from parsing_here import parsing_here
from published import write_cifar10_bins, write_cifar10_pickles

from podline.data import bounds
from podline.data.sources import class_names
from podline.data.sources.coco import CocoSource
from podline.data.sources.opening import open_source
from podline.errors import SourceError

CROWD: dict[str, Any] = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}


def opened(folder: Path) -> CocoSource:
    with parsing_here():
        return open_coco(folder, folder / "work")


def left_out(source: CocoSource) -> dict[str, str]:
    return {record.record: record.reason for record in source.quarantined}


@contextmanager
def memory_up_to(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


# Outlines


@pytest.mark.parametrize(
    ("bound", "outline", "found"),
    [
        ("OUTLINE_PIXELS", [[1, 1, 9, 1, 9, 9]], "0 runs and 27 pixels or more vs 4,000,000 and 2 at most"),
        ("OUTLINE_RUNS", {"size": [HEIGHT, WIDTH], "counts": [1, 1] * 768}, "768 runs and 0 pixels or more vs 2 and"),
    ],
)
def test_outlines_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, outline: Any, found: str
) -> None:
    files = CocoFiles()
    files.annotations[1] |= CROWD | {"segmentation": [[1, 1, 9, 1, 9, 9]] * 10_001}
    files.annotations[2] |= CROWD | {"segmentation": outline}
    folder = files.write(tmp_path)
    [reason] = left_out(opened(folder)).values()
    assert "at most 10000 items" in reason
    monkeypatch.setattr(bounds, bound, 2)
    assert found in left_out(opened(folder))["000000000003.jpg (image 3)"]


# Annotations


@pytest.mark.parametrize(
    "content",
    [
        b'{"info": "' + b"\\u0041\\ud83d\\ude00" * 1_000_000,
        b'{"annotations": [], "images": [' + b"{}," * 400_000 + b"{}]}",
    ],
    ids=["a long string", "empty objects"],
)
def test_bytes_that_become_many_times_as_much(tmp_path: Path, content: bytes) -> None:
    """It costs a process of its own, not this one."""
    folder = CocoFiles().write(tmp_path)
    (folder / "annotations/person_keypoints_train2017.json").write_bytes(content)
    with memory_up_to(20_000_000), pytest.raises(SourceError, match=r"train2017.json (takes more than|is not valid)"):
        open_coco(folder, tmp_path / "work")


def test_annotations_in_other_encodings(tmp_path: Path) -> None:
    document = CocoFiles().document().decode()
    found = []
    for number, encoding in enumerate(("utf-8", "utf-8-sig", "utf-16", "utf-32-le")):
        folder = CocoFiles().write(tmp_path / str(number))
        (folder / "annotations/person_keypoints_train2017.json").write_bytes(document.encode(encoding))
        found.append([image.id for image in opened(folder).splits["train"]])
    assert found[1:] == found[:-1]


def test_what_takes_too_much_is_told_with_the_setting_that_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODLINE_PARSE_LIMITS", "0.05")
    files = CocoFiles()
    files.images[2] |= {"width": 4000, "height": 3000}
    files.files["000000000003.jpg"] = jpeg(3, 4000, 3000)
    folder = files.write(tmp_path)
    [reason] = left_out(open_coco(folder, tmp_path / "work")).values()
    assert re.fullmatch(r"the file takes more than .*; if you trust it, raise the setting parse_limits", reason)
    path = folder / "annotations" / "person_keypoints_train2017.json"
    path.write_bytes(b'{"annotations": [], "images": [' + b"[]," * 1_000_000 + b"{}]}")
    with pytest.raises(SourceError, match=r"person_keypoints_train2017.json takes more than .*raise .*parse_limits"):
        open_coco(folder, tmp_path / "work")


# Names, places and members


NAMES = {
    "a" * 252 + ".jpg": (f"{'a' * 252}.jp (image 1)", "the file cannot be read (File name too long)"),
    "\x1b[2J\0.jpg": ("?[2J?.jpg (image 2)", "the file cannot be read (its name is no text)"),
}


@pytest.mark.parametrize("zipped", [False, True])
def test_names_that_no_file_has(tmp_path: Path, zipped: bool) -> None:
    files = CocoFiles()
    for image, name in zip(files.images, [*NAMES, "\udcff.jpg"], strict=False):
        image["file_name"] = name
    found = {one.record: one.reason for one in opened(files.write(tmp_path, zipped=zipped)).quarantined}
    for record, reason in NAMES.values():
        assert found.pop(record) == ("train2017.zip has no such file" if zipped else reason)
    assert "valid string" in found.pop("images[2]")  # it is no Unicode, and so no name
    assert found == {"annotations[2]": "there is no image 3"}


# Pickles and rows


def refused(folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source("cifar10", str(folder), folder.parent / "work")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a\u2028b", "has the character U+2028"),
        ("a\x85b", "has the character U+0085"),
        ("\ud800", "has the character U+D800"),
        ("\x1b[2J", "has the character U+001B"),
        (" ", "is empty"),
        ("x" * 256, "has 256 letters vs 255 at most"),
        ("grün", ""),
    ],
)
def test_class_names_that_are_no_line(name: str, told: str) -> None:
    assert class_names.problem_of(name).startswith(told)
    assert bool(class_names.problem_of(name)) == bool(told)


@pytest.mark.parametrize(
    ("rows", "cut"),
    [
        ((5, 5, 4, 5, 5), "data_batch_3.bin"),
        ((5, 5, 5, 1, 2), "data_batch_4.bin"),
        ((5, 5, 5, 5, 2), ""),
        ((5, 5, 4, 4, 4), ""),
        ((1, 2, 3, 4, 5), ""),
    ],
)
def test_a_batch_that_is_cut_at_a_row(tmp_path: Path, rows: tuple[int, ...], cut: str) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar", 6)
    for number, count in enumerate(rows, 1):
        path = folder / f"data_batch_{number}.bin"
        path.write_bytes(path.read_bytes()[: 3073 * count])
    if cut:
        told = f"{folder}/{cut} is cut short: {(folder / cut).stat().st_size:,} bytes vs 15,365 of the other batches"
        assert told in refused(folder)
    else:
        assert len(open_source("cifar10", str(folder), tmp_path / "work").splits[0]) == sum(rows)


def test_the_last_official_batch_is_as_long_as_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podline.data.sources.cifar._OFFICIAL_ROWS", 4)
    folder = write_cifar10_bins(tmp_path / "cifar")
    for number in range(1, 6):
        path = folder / f"data_batch_{number}.bin"
        path.write_bytes(path.read_bytes()[: 3073 * (4 if number < 5 else 3)])
    assert "data_batch_5.bin is cut short: 9,219 bytes vs 12,292" in refused(folder)


def test_one_file_of_a_data_set_is_not_its_folder(tmp_path: Path) -> None:
    folder = write_cifar10_pickles(tmp_path / "cifar")
    assert f"{folder}/batches.meta is one of the files of a data set vs the folder" in refused(folder / "batches.meta")


# Annotations
