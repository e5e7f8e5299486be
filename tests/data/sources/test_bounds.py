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
from published import write_cifar10_pickles

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.letterbox import LetterBox
from podline.data.people.masks import check_outlines, ignored_mask
from podline.data.sources.opening import open_source
from podline.data.sources.source import Source

CROWD: dict[str, Any] = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}
TRAIN = "annotations/person_keypoints_train2017.json"


def opened(folder: Path) -> Source:
    with parsing_here():
        return open_coco(folder, folder.parent / f"{folder.name} work")


def left_out(source: Source) -> dict[str, str]:
    return {record.record: record.reason for record in source.quarantined}


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


# Names, places and members


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
    path = files.write(tmp_path, zipped=True) / "train2017.zip"
    content = path.read_bytes()
    [reason] = left_out(opened(tmp_path)).values()
    assert reason == "has more than 128,000,000 bytes"
    path.write_bytes(content.replace(b"PK\3\4", b"PK\3\5", 1))
    told = "cannot be read from train2017.zip: BadZipFile: Bad magic number for file header"
    assert left_out(opened(tmp_path))["000000000001.jpg (image 1)"] == told


# Pickles


@pytest.mark.timeout(60)
def test_text_that_is_encoded_again_and_again(tmp_path: Path) -> None:
    """Eight bytes of a pickle make megabytes."""
    folder = write_cifar10_pickles(tmp_path / "cifar")
    text = b"\x80\2V" + b"a" * 1_000_000 + b"\nq\0c_codecs\nencode\nq\1U\6latin1q\2"
    (folder / "data_batch_2").write_bytes(text + b"h\1h\0h\2\x86R" * 5_000 + b".")
    with pytest.raises(SourceError, match="data_batch_2 takes more than"):
        open_source("cifar10", str(folder), tmp_path / "work")
