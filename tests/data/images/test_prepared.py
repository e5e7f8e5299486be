"""Data sets that TensorFlow Datasets has prepared, as a source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn_images import as_folders, as_prepared, drawn, encoded, images, opened, reasons, records

from podline.base.errors import SourceError
from podline.data.tfrecord import framed

pytestmark = pytest.mark.usefixtures("parsed_here")

VERSION = "1.0.0"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 90 images, one damaged and one twice."""
    found = images(90)
    found["cat"]["bad.jpg"] = b"\xff\xd8\xff\xe0 cut"
    found["cat"]["copy.png"] = found["cat"]["000.png"]
    more = {"cat": {f"{at}.png": encoded(drawn(3000 + at)) for at in range(5)}}
    folder = tmp_path_factory.mktemp("prepared")
    as_folders(folder / "folders", found)
    as_folders(folder / "split/train", found)
    as_folders(folder / "split/test", more)
    as_prepared(folder / "one", found)
    as_prepared(folder / "two", found, sequential=True, test=more, unlabelled=more)
    return folder


def test_it_is_the_same_as_the_images_in_folders(prepared: Path) -> None:
    folders, source = opened(prepared / "folders"), opened(prepared / "one/drawn")
    assert records(source) == records(folders)
    assert (source.files, source.class_names, source.read) == (folders.files, folders.class_names, 92)
    assert sorted(reasons(source).values()) == sorted(reasons(folders).values())
    words = source.notes()[0]
    assert "TensorFlow Datasets, drawn 1.0.0, shards: 3, features image, label; 3 classes" in words


def test_its_splits_are_those_of_the_data_set(prepared: Path) -> None:
    folders, source = opened(prepared / "split"), opened(prepared / "two/drawn" / VERSION)
    assert source.sizes == folders.sizes
    assert records(source) == records(folders)
    assert {text for key, text in reasons(source).items() if "unlabelled" in key} == {
        "is of the split 'unlabelled' vs train or test, testing, val, valid, validation"
    }


def features(folder: Path, **changes: object) -> None:
    path = folder / "features.json"
    said = json.loads(path.read_text())
    said["featuresDict"]["features"] |= changes
    path.write_text(json.dumps(said))


def info(folder: Path, **changes: object) -> None:
    path = folder / "dataset_info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def flip(place: int) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        data = bytearray((folder / SHARD).read_bytes())
        data[place] ^= 0x40
        (folder / SHARD).write_bytes(data)

    return change


SHARD = "drawn-train.tfrecord-00001-of-00003"
TRAIN = {"name": "train", "shardLengths": ["40", "40", "13"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: shutil.copytree(f, f.parent / "2.0.0"), r"2 prepared data sets .*2\.0\.0.*give the folder"),
        (lambda f: info(f, fileFormat="array_record"), r"array_record vs tfrecord; prepare it with"),
        (
            lambda f: info(f, splits=[{"name": "a", "shardLengths": [None]}]),
            r"shardLengths\.0 = None: Input should be a",
        ),
        (lambda f: info(f, splits=[TRAIN]), r"00002-of-00003 has 12 records vs 13 in dataset_info\.json"),
        (lambda f: (f / SHARD).unlink(), "lists a shard drawn-train.tfrecord-00001, which does not exist"),
        (lambda f: (f / "features.json").write_text("{"), r"features\.json cannot be read as JSON"),
        (lambda f: features(f, other={"image": {}}), r"image and other: each is an encoded image; .*file_column=NAME"),
        (
            lambda f: features(f, label={"classLabel": {"numClasses": "4"}}),
            r"label\.labels\.txt has 3 lines vs 4 classes",
        ),
        (
            lambda f: (f / SHARD).write_bytes(framed(b"no example") * 40),
            r"record 0 cannot be read as a tf\.train\.Example",
        ),
        (flip(1), r"record 0 at byte 0 is cut or damaged: its length does not"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    prepared: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    shutil.copytree(prepared / "one/drawn", tmp_path / "drawn")
    change(tmp_path / "drawn" / VERSION)
    with pytest.raises(SourceError, match=message) as caught:
        opened(tmp_path / "drawn")
    assert "\n" not in str(caught.value)


def test_one_of_several_features_is_chosen(prepared: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(prepared / "one/drawn", tmp_path / "drawn") / VERSION
    features(folder, other={"image": {}})
    assert records(opened(folder, file_column="image")) == records(opened(prepared / "folders"))
