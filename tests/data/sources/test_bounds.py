"""Small files that cost much, each at a small scale: bounds.py says what they may cost."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import HEIGHT, WIDTH, CocoFiles, open_coco, person
from parsing_here import parsing_here

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.letterbox import LetterBox
from podline.data.people.masks import check_outlines, ignored_mask
from podline.data.sources.source import Source
from podline.kinds.pose.coco_results import read_truth

CROWD: dict[str, Any] = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}
TRAIN = "annotations/person_keypoints_train2017.json"


def opened(folder: Path) -> Source:
    with parsing_here():
        return open_coco(folder, folder.parent / f"{folder.name} work")


def left_out(source: Source) -> dict[str, str]:
    return {record.record: record.reason for record in source.quarantined}


# Outlines


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["P", "0"])
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
    outlines: list[Any] = [[[5 * n % 400, n, 5 * n % 400 + 20, n + 3, n, n + 9]] for n in range(200)]
    outlines += [{"size": [400, 500], "counts": [n, 9, 199_991 - n]} for n in range(200)]
    crowds = [person(1, 1, **CROWD, segmentation=outline) for outline in outlines]
    assert ignored_mask(crowds, LetterBox(500, 400, 64), 4).any()
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
    monkeypatch.setattr(bounds, bound, 2)
    many, large = left_out(opened(files.write(tmp_path))).values()
    assert "at most 10000 items" in many
    assert found in large


# Annotations


def test_a_zip_of_spaces(tmp_path: Path) -> None:
    """3 GB of them were 3 MB, and took 6 GB of memory."""
    folder = CocoFiles().write(tmp_path, zipped=True)
    document = CocoFiles().document()[:-1]
    for spaces in (40_000_000, 80_000_000):
        with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(TRAIN, document + b" " * spaces + b"}")
        if spaces < bounds.UNPACKED_FREE:
            assert opened(folder).sizes["train"]
    with pytest.raises(SourceError, match=r"train2017\.json has 80,\d+,\d+ bytes vs 6\d,\d+,\d+ at most"):
        opened(folder)


def test_bytes_that_become_many_times_as_much(tmp_path: Path) -> None:
    """It costs a process of its own, not this one."""
    folder = CocoFiles().write(tmp_path)
    (folder / TRAIN).write_bytes(b'{"info": "' + b"\\u0041\\ud83d\\ude00" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=r"train2017.json (takes more than|is not valid)"):
            open_coco(folder, tmp_path / "work")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_truth_of_many_lists(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_bytes(b"[" + b"[]," * 200_000 + b"[]]")
    with pytest.raises(SourceError, match="200,002 lists and objects in 600,004 bytes vs 47,500 at most"):
        read_truth(tmp_path / "truth.json")


@pytest.mark.parametrize("zipped", [False, True])
def test_names_that_no_file_has(tmp_path: Path, zipped: bool) -> None:
    files, long = CocoFiles(), "a" * 252
    for image, name in zip(files.images, (f"{long}.jpg", "\x1b[2J\0.jpg", "\udcff.jpg"), strict=False):
        image["file_name"] = name
    found = left_out(opened(files.write(tmp_path, zipped=zipped)))
    reasons = {found.pop(f"{long}.jp (image 1)"), found.pop("?[2J?.jpg (image 2)")}
    assert reasons == {"is not in the source"}
    assert "valid string" in found.pop("images[2]")  # it is no Unicode, and so no name
    assert found == {"annotations[2]": "there is no image 3"}


def test_members_that_cannot_be(tmp_path: Path) -> None:
    files = CocoFiles()
    files.files["000000000004.jpg"] += bytes(130_000_000)
    files.files["000000000005.jpg"] += bytes(1_000_000 - len(files.files["000000000005.jpg"]))
    path = files.write(tmp_path, zipped=True) / "train2017.zip"
    content = path.read_bytes().replace(b"PK\3\4", b"PK\3\5", 1)
    path.write_bytes(content.replace((1_000_000).to_bytes(4, "little"), (900).to_bytes(4, "little")))
    found = left_out(opened(tmp_path))
    told = "cannot be read from train2017.zip: BadZipFile: Bad magic number for file header"
    assert found["000000000001.jpg (image 1)"] == told
    assert found["000000000004.jpg (image 4)"] == "has more than 128,000,000 bytes"
    assert "Bad CRC-32" in found["000000000005.jpg (image 5)"], "it unpacks to more than it says"
