"""Whatever a stranger's file holds: data, or one line that names the file, in bounded memory and CPU time."""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import drawn, encoded, opened
from hostile_files import KINDS, prepared, write_tfds
from tiff_files import deep_png

from podline.base.errors import SourceError
from podline.data.sandbox.limits import Breach, ParseLimits
from podline.data.sandbox.pool import Sandbox


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
