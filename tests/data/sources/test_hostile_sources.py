"""Small sources that ask for much are refused in one line that names the file; memory and CPU time are limited."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import drawn, encoded, opened
from hostile_files import CASES, DAMAGES, KINDS, problem_of
from PIL import Image

from podline.errors import SourceError

_STEP = 167  # of all cases, the few that are tried each time
FEATURES = {
    "featuresDict": {"features": {"image": {"image": {}}, "label": {"classLabel": {"numClasses": "999999999"}}}}
}


def many_classes(folder: Path) -> None:
    split = {"name": "train", "shardLengths": ["1"]}
    (folder / "features.json").write_text(json.dumps(FEATURES))
    (folder / "dataset_info.json").write_text(json.dumps({"name": "x", "splits": [split]}))
    (folder / "x-train.tfrecord-00000-of-00001").touch()


def many_shards(folder: Path) -> None:
    text = json.dumps(FEATURES).replace("999999999", "2")
    (folder / "features.json").write_text(text)
    lengths = ",".join(["1"] * 3_000_000)
    (folder / "dataset_info.json").write_text(
        f'{{"name": "x", "splits": [{{"name": "train", "shardLengths": [{lengths}]}}]}}'
    )


def one_large_value(folder: Path) -> None:
    image = pa.DictionaryArray.from_arrays(np.zeros(5_000, np.int32), pa.array([bytes(50_000_000)], pa.binary()))
    _write(folder, image, 5_000)


def one_large_image(folder: Path) -> None:
    stream = io.BytesIO()
    Image.new("L", (6850, 6850)).save(stream, "PNG")
    image = pa.DictionaryArray.from_arrays(np.zeros(2_000, np.int32), pa.array([stream.getvalue()], pa.binary()))
    _write(folder, image, 2_000)


def equal_images(folder: Path) -> None:
    image = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array([encoded(drawn(1))], pa.binary()))
    _write(folder, image, 100_000)


def _write(folder: Path, image: pa.Array, rows: int) -> None:
    labels = pa.array([str(number % 7) for number in range(rows)])
    pq.write_table(pa.table({"image": image, "label": labels}), folder / "bomb.parquet", store_schema=False)


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
    header = struct.pack(">IIBBBBB", 6900, 6900, 16, 6, 0, 0, 0)
    data = zlib.compress(bytes((1 + 6900 * 8) * 6900), 1)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    png = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (many_classes, r"tfrecord-00000.* has 0 records"),
        pytest.param(many_shards, r"dataset_info\.json.*3,000,000 shards", marks=pytest.mark.slow),
        pytest.param(one_large_value, r"bomb\.parquet", marks=pytest.mark.slow),
        (one_large_image, r"bomb\.parquet"),
        pytest.param(equal_images, r"bomb\.parquet", marks=pytest.mark.slow),
        (wide_header, r"bomb\.csv.*first line"),
        pytest.param(empty_members, r"bomb\.tar\.gz", marks=pytest.mark.slow),
        (linked_folders, "linked to each other"),
        (deep_pixels, r"no image|bomb"),
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


@pytest.mark.parametrize(("kind", "damage"), CASES[::_STEP])
def test_a_damaged_file_is_read_or_refused_in_a_line(tmp_path: Path, kind: str, damage: str) -> None:
    assert problem_of(kind, damage, tmp_path) == ""


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_to_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    """Also no damage at all, or a reader that refuses everything would pass."""
    (tmp_path / "whole").mkdir()
    KINDS[kind].read(tmp_path / "whole", KINDS[kind].write(tmp_path / "whole"))
    found = {}
    for damage in DAMAGES:
        (tmp_path / damage).mkdir()
        found[damage] = problem_of(kind, damage, tmp_path / damage)
    assert {damage: problem for damage, problem in found.items() if problem} == {}
