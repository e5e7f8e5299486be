"""Small files that cost much, each at a small scale: bounds.py says what they may cost."""

from __future__ import annotations

import re
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import HEIGHT, WIDTH, CocoFiles, jpeg, open_coco, person
from parsing_here import parsing_here
from published import python3, write_archive, write_cifar10_bins, write_cifar10_pickles

from podline.data import bounds
from podline.data.coco_letterbox import LetterBox
from podline.data.sources import class_names
from podline.data.sources.coco import CocoSource
from podline.data.sources.coco_masks import check_outlines, ignored_mask
from podline.data.sources.opening import open_source
from podline.data.sources.pickles import Label, write_batch
from podline.errors import SourceError
from podline.kinds.pose.coco_results import read_truth

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


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["o", "P", "0", "1"])
def test_a_megabyte_of_run_lengths(piece: str) -> None:
    outline = {"size": [HEIGHT, WIDTH], "counts": piece * 1_500_000}
    with pytest.raises(SourceError, match="annotation 1: run lengths add up to"):
        check_outlines([person(1, 1, **CROWD, segmentation=outline)], WIDTH, HEIGHT)


def test_many_crowds_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 triangles on 64 million pixels took more than 40 seconds, each drawn over all pixels."""
    drawn, plain = [], np.cumsum

    def cumsum(values: Any, **options: Any) -> Any:
        drawn.append(values.size)
        return plain(values, **options)

    monkeypatch.setattr(np, "cumsum", cumsum)
    box = LetterBox(500, 400, 64)
    crowds = [
        person(n, 1, **CROWD, segmentation=[[5 * n % 400, n, 5 * n % 400 + 20, n + 3, n, n + 9]]) for n in range(200)
    ]
    crowds += [
        person(n, 1, **CROWD, segmentation={"size": [400, 500], "counts": [n, 9, 199_991 - n]}) for n in range(200)
    ]
    mask = ignored_mask(crowds, box, 4)
    assert mask.any()
    assert 200_000 < sum(drawn) < 2 * 200_000


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


def test_a_zip_of_spaces(tmp_path: Path) -> None:
    """3 GB of them were 3 MB, and took 6 GB of memory."""
    folder = CocoFiles().write(tmp_path, zipped=True)
    document = CocoFiles().document()
    with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations/person_keypoints_train2017.json", document[:-1] + b" " * 40_000_000 + b"}")
    assert opened(folder).sizes["train"]
    with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations/person_keypoints_train2017.json", document[:-1] + b" " * 80_000_000 + b"}")
    with pytest.raises(SourceError, match=r"train2017\.json has 80,\d+,\d+ bytes vs 6\d,\d+,\d+ at most"):
        opened(folder)


@pytest.mark.parametrize(
    "content",
    [
        b'{"info": "' + b"\\u0041\\ud83d\\ude00" * 1_000_000,
        pytest.param(b'{"annotations": [], "images": [' + b"{}," * 400_000 + b"{}]}", marks=pytest.mark.slow),
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


def test_a_member_beyond_the_end_of_its_zip(tmp_path: Path) -> None:
    folder = CocoFiles().write(tmp_path, zipped=True)
    path = folder / "train2017.zip"
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\1\2")
    extra, size = struct.unpack_from("<H", content, entry + 30)[0], struct.unpack_from("<H", content, entry + 28)[0]
    assert extra == 0
    content[entry + 30 : entry + 32] = struct.pack("<H", 12)
    content[entry + 42 : entry + 46] = b"\xff" * 4
    place = entry + 46 + size
    content[place:place] = struct.pack("<HHQ", 1, 8, 1 << 63)
    end = content.rindex(b"PK\5\6")
    content[end + 12 : end + 16] = struct.pack("<I", struct.unpack_from("<I", content, end + 12)[0] + 12)
    path.write_bytes(content)
    [reason] = left_out(opened(folder)).values()
    assert reason.startswith("the file lies beyond the")


def test_a_member_whose_header_is_gone(tmp_path: Path) -> None:
    folder = CocoFiles().write(tmp_path, zipped=True)
    path = folder / "train2017.zip"
    path.write_bytes(path.read_bytes().replace(b"PK\3\4", b"PK\3\5", 1))
    [reason] = left_out(opened(folder)).values()
    assert reason.endswith("train2017.zip is damaged there, at byte 0: no member starts there")


def test_a_member_that_becomes_too_large(tmp_path: Path) -> None:
    files = CocoFiles()
    files.files["000000000004.jpg"] += bytes(70_000_000)
    [reason] = left_out(opened(files.write(tmp_path, zipped=True))).values()
    assert re.fullmatch(r"the file has 70,\d+,\d+ bytes vs 64,000,000 at most", reason)


# Pickles and rows


def refused(folder: Path) -> str:
    with pytest.raises(SourceError) as caught:
        open_source("cifar10", str(folder), folder.parent / "work")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def batch(**changed: Any) -> dict[str, Any]:
    return {"labels": [1, 2], "data": np.zeros((2, 3072), np.uint8)} | changed


@pytest.mark.parametrize("protocol", [0, 4])
def test_a_label_of_many_digits(tmp_path: Path, protocol: int) -> None:
    content = python3(batch(labels=[1, 77_777 if protocol == 0 else 1 << 20_000]), protocol)
    (tmp_path / "data_batch_2").write_bytes(content.replace(b"77777", b"9" * 6_000))
    told = r"the pickle is damaged \(ValueError" if protocol == 0 else r"labels\[1\] is a number of"
    with pytest.raises(SourceError, match=f"data_batch_2: {told}"):
        write_batch(tmp_path / "data_batch_2", "CIFAR-10", [Label("label", "labels", class_names.CIFAR10)], tmp_path)


@pytest.mark.timeout(60)
def test_text_that_is_encoded_again_and_again(tmp_path: Path) -> None:
    """Eight bytes of a pickle make megabytes."""
    folder = write_cifar10_pickles(tmp_path / "cifar")
    text = b"\x80\2V" + b"a" * 1_000_000 + b"\nq\0c_codecs\nencode\nq\1U\6latin1q\2"
    (folder / "data_batch_2").write_bytes(text + b"h\1h\0h\2\x86R" * 5_000 + b".")
    assert "data_batch_2 takes more than" in refused(folder)


def test_class_names_of_many_bytes(tmp_path: Path) -> None:
    """3 GB of them were 14 MB in an archive, and took more than two minutes."""
    folder = write_cifar10_bins(tmp_path / "cifar-10-batches-bin")
    names = (folder / "batches.meta.txt").read_bytes() + b"\n" * 1_000_000
    members = {f"c/{path.name}": path.read_bytes() for path in folder.iterdir()} | {"c/batches.meta.txt": names}
    archive = write_archive(tmp_path / "a.tar.gz", members)
    assert f"c/batches.meta.txt has {len(names):,} bytes vs 1,000,000 at most for class names" in refused(archive)
    (folder / "batches.meta.txt").write_bytes(names)
    assert f"has {len(names):,} bytes vs 1,000,000 at most for class names" in refused(folder)


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


def test_a_class_name_of_two_lines_is_shown_in_one(tmp_path: Path) -> None:
    folder = write_cifar10_pickles(tmp_path / "cifar")
    (folder / "batches.meta").write_bytes(python3({"label_names": ["a\nb", *"bcdefghij"]}, 2))
    told = r"the class name 'a\nb' has the character U+000A, a line break or an invalid character"
    assert told in refused(folder)


def test_a_batch_of_no_bytes(tmp_path: Path) -> None:
    folder = write_cifar10_bins(tmp_path / "cifar")
    (folder / "data_batch_3.bin").write_bytes(b"")
    assert f"{folder}/data_batch_3.bin is empty: 0 bytes" in refused(folder)


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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[" * 5_000, "not JSON: maximum recursion depth"),
        (b"[" + b"[]," * 200_000 + b"[]]", "200,002 lists and objects in 600,004 bytes vs 47,500 at most"),
    ],
)
def test_annotations_that_are_none(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "truth.json").write_bytes(content)
    with pytest.raises(SourceError, match=told) as caught:
        read_truth(tmp_path / "truth.json")
    assert "\n" not in str(caught.value)
