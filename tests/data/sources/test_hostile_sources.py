"""Whatever a stranger's file holds: data, or one line that names the file, in bounded memory and CPU time."""

from __future__ import annotations

import os
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_files
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from coco_files import HEIGHT, WIDTH, CocoFiles, open_coco, person
from drawn_images import drawn, encoded, opened
from hostile_files import KINDS, prepared, write_tfds
from parsing_here import parsing_here
from tiff_files import deep_png

from podline.base.errors import SourceError
from podline.data import bounds
from podline.data.letterbox import LetterBox
from podline.data.people.masks import check_outlines, ignored_mask
from podline.data.sandbox.limits import Breach, ParseLimits
from podline.data.sandbox.pool import Sandbox
from podline.data.sources.source import Source


def claims(classes: str, lengths: list[str]) -> Callable[[Path], None]:
    """Claims of a data set that TensorFlow Datasets prepared."""
    return lambda folder: write_tfds(folder, classes, lengths)


def repeated(value: Callable[[], bytes], rows: int) -> Callable[[Path], None]:
    """Parquet of one image, many times."""

    def write(folder: Path) -> None:
        image = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value()], pa.binary()))
        labels = pa.array([str(number % 7) for number in range(rows)])
        pq.write_table(pa.table({"image": image, "label": labels}), folder / "bomb.parquet", store_schema=False)

    return write


def large_image() -> bytes:
    return encoded(np.zeros((6850, 6850), np.uint8))


def wide_header(folder: Path) -> None:
    (folder / "bomb.csv").write_text("file,label," + "a," * 5_000_000)


def empty_members(folder: Path) -> None:
    member = tarfile.TarInfo("a.cls").tobuf()
    with (folder / "bomb.tar.gz").open("wb") as stream:
        packed = zlib.compressobj(1, zlib.DEFLATED, 31)
        for _ in range(1_000):
            stream.write(packed.compress(member * 1_000))
        stream.write(packed.compress(bytes(1024)) + packed.flush())


def linked_folders(folder: Path) -> None:
    for name in "abcdefghijkl":
        (folder / name).mkdir()
        for other in "abcdefghijkl":
            (folder / name / other).symlink_to(folder / other)


def deep_pixels(folder: Path) -> None:
    """Two images of 16 bits, four channels and as many pixels as may be."""
    png = deep_png(np.zeros((6900, 6900, 4), np.uint8))
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "bomb.png").write_bytes(png)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (claims("999999999", ["1"]), r"tfrecord-00000.* has 24 records"),
        pytest.param(claims("2", ["1"] * 3_000_000), r"dataset_info\.json.*3,000,000 shards", marks=pytest.mark.slow),
        pytest.param(repeated(lambda: bytes(50_000_000), 5_000), r"bomb\.parquet", marks=pytest.mark.slow),
        pytest.param(repeated(lambda: encoded(drawn(1)), 100_000), r"bomb\.parquet", marks=pytest.mark.slow),
        pytest.param(repeated(large_image, 2_000), r"bomb\.parquet", marks=pytest.mark.slow),
        (wide_header, r"bomb\.csv.*first line"),
        pytest.param(empty_members, r"bomb\.tar\.gz", marks=pytest.mark.slow),
        (linked_folders, "linked to each other"),
        pytest.param(deep_pixels, r"no image|bomb", marks=pytest.mark.slow),
    ],
)
def test_a_small_source_that_asks_for_much_is_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    make(folder)
    with pytest.raises(SourceError, match=message) as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


@pytest.fixture(name="outer", scope="module")
def _outer() -> Iterator[Sandbox]:
    """One child that reads thousands of inputs; what readers start is called in it, with their own limits."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        with Sandbox(f"{hostile_files.__name__}:runner") as outer:
            yield outer


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("first", "count"), [(0, 5), pytest.param(5, 500, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_mutated_inputs(outer: Sandbox, name: str, first: int, count: int) -> None:
    for start in range(first, first + count, 20):
        requests = [(name, number) for number in range(start, min(start + 20, first + count))]
        found = zip(requests, outer.map(requests, ParseLimits(2 << 30, 120.0), "inputs"), strict=True)
        # One that takes too much, or crashes its parser, is refused by its sandbox.
        assert {one: problem for one, problem in found if problem and not isinstance(problem, Breach)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_nothing_happened_to_is_read(tmp_path: Path, kind: str) -> None:
    """Or a reader that refuses everything would pass."""
    KINDS[kind].read(tmp_path / "whole", prepared(KINDS[kind], tmp_path / "whole"))


CROWD: dict[str, Any] = {"iscrowd": 1, "num_keypoints": 0, "keypoints": [0] * 51}
TRAIN = "annotations/person_keypoints_train2017.json"


def opened_coco(folder: Path) -> Source:
    with parsing_here():
        return open_coco(folder, folder.parent / f"{folder.name} work")


def left_out(source: Source) -> dict[str, str]:
    return {record.record: record.reason for record in source.quarantined}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["P", "0"])
def test_a_megabyte_of_run_lengths(piece: str) -> None:
    outline = {"size": [HEIGHT, WIDTH], "counts": piece * 1_500_000}
    with pytest.raises(SourceError, match="annotation 1: run lengths add up to"):
        check_outlines([person(1, 1, **CROWD, segmentation=outline)], WIDTH, HEIGHT)


def test_many_crowds_are_drawn_once() -> None:
    """Each drawn over all pixels, they take a minute."""
    outlines: list[Any] = [[[4 * n, n, 4 * n + 20, n + 3, 4 * n, n + 9]] for n in range(1_000)]
    outlines += [{"size": [4000, 5000], "counts": [n, 9, 19_999_991 - n]} for n in range(1_000)]
    crowds = [person(1, 1, **CROWD, segmentation=outline) for outline in outlines]
    started = time.process_time()
    assert ignored_mask(crowds, LetterBox(5000, 4000, 64), 4).any()
    assert time.process_time() - started < 10


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
    many, large = left_out(opened_coco(files.write(tmp_path))).values()
    assert "at most 10000 items" in many
    assert found in large


def test_a_zip_of_spaces(tmp_path: Path) -> None:
    """3 GB of them were 3 MB, and took 6 GB of memory."""
    folder = CocoFiles().write(tmp_path, zipped=True)
    document = CocoFiles().document()[:-1]
    for spaces in (40_000_000, 80_000_000):
        with zipfile.ZipFile(folder / "annotations_trainval2017.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(TRAIN, document + b" " * spaces + b"}")
        if spaces < bounds.UNPACKED_FREE:
            assert opened_coco(folder).sizes["train"]
    with pytest.raises(SourceError, match=r"train2017\.json has 80,\d+,\d+ bytes vs 6\d,\d+,\d+ at most"):
        opened_coco(folder)


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


@pytest.mark.parametrize("zipped", [False, True])
def test_names_that_no_file_has(tmp_path: Path, zipped: bool) -> None:
    files, long = CocoFiles(), "a" * 252
    for image, name in zip(files.images, (f"{long}.jpg", "\x1b[2J\0.jpg", "\udcff.jpg"), strict=False):
        image["file_name"] = name
    found = left_out(opened_coco(files.write(tmp_path, zipped=zipped)))
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
    found = left_out(opened_coco(tmp_path))
    told = "cannot be read from train2017.zip: BadZipFile: Bad magic number for file header"
    assert found["000000000001.jpg (image 1)"] == told
    assert found["000000000004.jpg (image 4)"] == "has more than 128,000,000 bytes"
    assert "Bad CRC-32" in found["000000000005.jpg (image 5)"], "it unpacks to more than it says"
