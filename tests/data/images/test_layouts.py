"""The same images in any layout, also as TensorFlow Datasets prepares them, are the same records; faults are a line."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_images import (
    CLASSES,
    as_folders,
    as_parquet,
    as_prepared,
    as_table,
    as_webdataset,
    drawn,
    encoded,
    images,
    opened,
    reasons,
    records,
    write_tar,
)

from podline.base.errors import SourceError
from podline.data.images.listing import folders_around
from podline.data.images.settings import ImagesSettings
from podline.data.pictures import picture_of
from podline.data.tfrecord import framed

pytestmark = pytest.mark.usefixtures("parsed_here")

LAYOUTS: dict[str, Callable[..., Path]] = {
    "folders": as_folders,
    "csv": as_table,
    "tsv": lambda *given: as_table(*given, kind="tsv"),
    "jsonl": lambda *given: as_table(*given, kind="jsonl"),
    "parquet table": lambda *given: as_table(*given, kind="parquet"),
    "webdataset": as_webdataset,
    "compressed webdataset": lambda *given: as_webdataset(*given, name="part.tar.gz"),
    "webdataset with JSON": lambda *given: as_webdataset(*given, as_json=True),
    "parquet": as_parquet,
}


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "folders"])
def test_the_same_images_are_the_same_records(tmp_path: Path, layout: str) -> None:
    found = images(90)
    found["cat"]["bad.jpg"] = b"\xff\xd8\xff\xe0 cut"
    found["cat"]["copy.png"] = found["cat"]["000.png"]
    found["Åse"]["odd.png"] = encoded(drawn(500))
    found["cat"]["odd too.png"] = found["Åse"]["odd.png"]
    folders = opened(as_folders(tmp_path / "folders", found))
    other = opened(LAYOUTS[layout](tmp_path / "other", found))
    assert records(other) == records(folders)
    assert (other.files, other.class_names, other.read) == (folders.files, folders.class_names, 94)
    assert len(other.quarantined) == len(folders.quarantined) == 3
    (file, *_) = (path for path in (tmp_path / "other").iterdir() if path.is_file())
    assert records(opened(file)) == records(folders), "one file may be the source"


@pytest.mark.parametrize("name", ["part.tar", "PART.TAR"])
def test_files_beside_an_archive_are_not_listed(tmp_path: Path, name: str) -> None:
    as_webdataset(tmp_path, images(12), name)
    assert not folders_around(tmp_path / name, ImagesSettings())


def test_splits_are_those_of_the_files_names(tmp_path: Path) -> None:
    found, more = images(60), {name: {f"{at}.png": encoded(drawn(3000 + at))} for at, name in enumerate(CLASSES)}
    as_webdataset(tmp_path / "raw", found, "train-00000-of-00001.tar")
    as_webdataset(tmp_path / "raw" / "data", more, "validation-00000.tar")
    source = opened(tmp_path / "raw")
    assert source.sizes == {"train": 60, "test": 3}
    folders = as_folders(as_folders(tmp_path / "folders" / "train", found).parent / "val", more).parent
    assert records(opened(folders)) == records(source)


def table(tmp_path: Path, **columns: Any) -> Path:
    return as_table(tmp_path / "raw", images(), **columns)


def test_a_tables_columns_of_splits_and_groups(tmp_path: Path) -> None:
    splits = ["Train", "valid", "train", "train", "other", "", *["train"] * 54]
    groups = ["", "a", "a", *[""] * 57]
    source = opened(table(tmp_path, split=splits, group=groups))
    assert reasons(source) == {
        "all/002.webp": "is of the group 'a', as images to test on",
        "all/004.gif": "is of the split 'other' vs train or test, testing, val, valid, validation",
    }
    assert source.sizes["test"] in (1, 2)  # a hash decides on the empty one
    assert "tested on valid" in source.notes()[0]


def test_rows_that_name_no_file_of_the_source_are_left_out(tmp_path: Path) -> None:
    folder = table(tmp_path)
    (tmp_path / "outside.png").write_bytes(encoded(drawn(1)))
    rows = ["../outside.png,cat", "/etc/passwd,cat", "all/nobody.png,cat", "all,cat", ",cat", "all/001.jpeg,cat,more"]
    rows += ["all/000.png,cat", "./all/001.jpeg,cat"]
    with (folder / "labels.csv").open("a") as stream:
        stream.write("\n" + "\n".join(rows))
    assert reasons(opened(folder)) == {
        "../outside.png": "lies outside of the source",
        "/etc/passwd": "lies outside of the source",
        "all/nobody.png": "there is no such file",
        "all": "there is no such file",
        "labels.csv:66": "names no file",
        "labels.csv:67": "has 3 values vs 2 columns",
        "all/000.png": "is listed before",
        "all/001.jpeg": "is listed as 'cat' and as '日本 dog'",
    }


def test_rows_that_cannot_be_read_belong_to_the_split_of_their_table(tmp_path: Path) -> None:
    lines = (table(tmp_path) / "labels.csv").read_text().splitlines()
    (tmp_path / "raw" / "labels.csv").unlink()
    (tmp_path / "raw" / "train.csv").write_text("\n".join(lines[:41]))
    (tmp_path / "raw" / "test.csv").write_text("\n".join([lines[0], *lines[41:], "all/1.png,cat,more", ",cat"]))
    source = opened(tmp_path / "raw")
    assert [(record.split, record.record) for record in source.quarantined] == [
        ("test", "test.csv:22"),
        ("test", "test.csv:23"),
    ]


def test_a_table_names_files_by_absolute_paths_or_without_endings(tmp_path: Path) -> None:
    folder = table(tmp_path)
    expected = records(opened(folder))
    text = (folder / "labels.csv").read_text().replace("all/", f"{folder}/all/")
    (folder / "labels.csv").unlink()
    (folder / "Labels.CSV").write_text(f"{text}\n  \n , \n")
    source = opened(folder)
    assert (records(source), reasons(source)) == (expected, {})
    (folder / "Labels.CSV").write_text(re.sub(r"(?m)^(.*all/\d+)\.\w+", r"\1", text))  # without their endings
    assert records(opened(folder)) == expected
    (folder / "all" / "000.jpg").write_bytes(encoded(drawn(800)))
    assert reasons(opened(folder))["all/000"] == "may be all/000.jpg or all/000.png"


def test_a_folder_that_may_not_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, scandir = table(tmp_path), os.scandir
    expected = records(opened(folder))
    (folder / "System Volume Information").mkdir()

    def refused(path: Any) -> Any:  # root may read everything
        if str(path).endswith("Information"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    source = opened(folder)
    assert records(source) == expected
    assert reasons(source) == {"System Volume Information": "is a folder that may not be read"}


@pytest.mark.parametrize("layout", ["folders", "csv", "webdataset", "parquet"])
def test_pointers_of_git_lfs_say_what_to_do(tmp_path: Path, layout: str) -> None:
    folder = LAYOUTS[layout](tmp_path / "raw", images(12))
    for file in (file for file in folder.rglob("*") if file.is_file()):
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n")
    with pytest.raises(SourceError, match=r"is a Git LFS pointer, .* run `git lfs pull`"):
        opened(folder)


def test_a_table_of_boxes_is_no_table_of_classes(tmp_path: Path) -> None:
    file = table(tmp_path) / "labels.csv"
    file.write_text("\n".join([file.read_text(), *file.read_text().splitlines()[1:30]]))
    with pytest.raises(SourceError, match=r"29 of 60 files have several rows vs 10% at most .* one row for each image"):
        opened(file.parent)


def test_columns_and_folder_that_are_given(tmp_path: Path) -> None:
    folder = table(tmp_path)
    expected, file = records(opened(folder)), folder / "labels.csv"
    text = file.read_text().replace("file_name,label", "where;what")
    file.write_text(text.replace(",", ";").replace("all/", ""))
    given = {"file_column": "where", "label_column": "what", "images": "all"}
    assert records(opened(folder, **given)) == expected
    for changes, told in (
        (
            {"file_column": ""},
            r"columns 'where', 'what', but none for files.*file_column=NAME",
        ),
        ({"label_column": "label"}, r"columns 'where', 'what', but not label \(--set conversion.label_column\)"),
        ({"images": "nowhere"}, "nowhere is not a folder"),
    ):
        with pytest.raises(SourceError, match=told):
            opened(folder, **given | changes)


@pytest.mark.parametrize("ending", [".png", ""])
def test_a_table_of_bare_names_says_the_folder_of_its_images(tmp_path: Path, ending: str) -> None:
    same = {name: {f"{Path(file).stem}.png": data for file, data in files.items()} for name, files in images().items()}
    folder = as_table(tmp_path / "raw", same)
    expected, file = records(opened(folder)), folder / "labels.csv"
    file.write_text(file.read_text().replace("all/", "").replace(".png", ending))
    (folder / "all").rename(folder / "train")
    (folder / "sample_submission.csv").write_text("file_name,label\n900,cat\n")
    (folder / "test").mkdir()
    (folder / "test" / "900.png").write_bytes(encoded(drawn(900)))
    with pytest.raises(SourceError, match=rf"none of the 60 files .* exists, such as \d+{ending}; .*images=train$"):
        opened(folder)
    source = opened(folder, images="train")
    assert (records(source), source.read) == (expected, 60), "what only the table without labels names is not read"


def test_images_that_a_table_does_not_name_count_as_left_out(tmp_path: Path) -> None:
    folder = table(tmp_path)
    expected = records(opened(folder))
    for at, name in enumerate(("more.jpg", "more", "notes.txt")):
        (folder / "all" / name).write_bytes(encoded(drawn(700 + at)) if at < 2 else b"words")
    source = opened(folder)
    assert (records(source), source.read) == (expected, 63)
    assert sum(part.reasons.total() for part in source.left_out) == 2
    (folder / "beside.png").write_bytes(encoded(drawn(800)))
    assert opened(folder / "labels.csv").read == 63


def test_two_layouts_are_told_apart_by_the_setting(tmp_path: Path) -> None:
    folder = as_folders(table(tmp_path), images())
    told = r"several layouts: folders, <class>/; table, labels.csv.* --layout folders or"
    with pytest.raises(SourceError, match=told):
        opened(folder)
    source = opened(folder, layout="table")
    assert (sum(source.sizes.values()), source.read, len(source.quarantined)) == (60, 120, 60)
    assert set(reasons(source).values()) == {"is not named by the table"}
    with pytest.raises(SourceError, match="is not a source of images as webdataset: it holds"):
        opened(folder, layout="webdataset")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "notes.md").write_text("none")
    with pytest.raises(SourceError, match=r"none is not a source .*: it holds 1 \.md; accepted are class folders"):
        opened(tmp_path / "none")
    with pytest.raises(SourceError, match="missing does not exist; give an existing folder or file"):
        opened(tmp_path / "missing")


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_an_archive_of_class_folders_says_how_it_is_unpacked(tmp_path: Path, kind: str) -> None:
    folder = as_folders(tmp_path / "raw", images())
    archive = Path(shutil.make_archive(str(tmp_path / "my photos"), kind, folder))
    with pytest.raises(SourceError, match=r"is not a source of images: it holds 1 \..*unpack it") as error:
        opened(archive)
    command, told = str(error.value).split("`")[1:]
    command = command.replace("unzip", f"{sys.executable} -m zipfile -e").replace(" -d ", " ")
    subprocess.run(command, shell=True, check=True)  # noqa: S602 (it is told for a shell)
    assert records(opened(Path(shlex.split(told)[-1]))) == records(opened(folder))


def samples(path: Path, said: list[dict[str, Any]], classes: bool = False) -> Path:
    """A WebDataset of images with JSON of each; with a class in a file of its own."""
    members = {}
    for number, values in enumerate(said):
        members |= {f"{number:03}.png": encoded(drawn(number)), f"{number:03}.json": json.dumps(values).encode()}
        members |= {f"{number:03}.cls": CLASSES[number % 2].encode()} if classes else {}
    return write_tar(path, members)


@pytest.mark.parametrize(("name", "classes"), [("part.tar.gz", True), ("train-0.tar", False)])
def test_a_samples_json_says_its_split(tmp_path: Path, name: str, classes: bool) -> None:
    said: list[dict[str, Any]] = [{"split": "Test" if number % 4 == 3 else "train"} for number in range(40)]
    if not classes:
        said = [{**values, "label": CLASSES[number // 2 % 2]} for number, values in enumerate(said)]
    folder = samples(tmp_path / "raw" / name, said, classes)
    for source in (opened(folder), opened(folder)):  # the second one is in the cache
        assert source.sizes == {"train": 30, "test": 10}
        assert "tested on test" in source.notes()[0]


def test_a_sample_without_image_or_label_is_left_out(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{"label": CLASSES[number % 2]} for number in range(40)]
    said[3:6] = [{}, {"label": None}, {"label": {"a": 1}}]
    folder = samples(tmp_path / "raw" / "part.tar", said)
    write_tar(folder / "more.tar", {"a.cls": b"cat", "b.txt": b"words", "b.cls": b"cat"})
    assert reasons(opened(folder)) == {
        "part.tar/003": "has no class",
        "part.tar/004": "has no class",
        "part.tar/005": "has the value {'a': 1}, expected a text or a number",
        "more.tar/a": "has cls vs one image",
        "more.tar/b": "has txt, cls vs one image",
    }
    assert opened(folder, label_column="label").read == 42
    with pytest.raises(SourceError, match=r"keys?|columns .*label_column"):
        opened(samples(tmp_path / "none" / "part.tar", [{"species": "cat"}] * 4))


def bad_metadata(file: Path) -> None:
    pq.write_table(pq.read_table(file).replace_schema_metadata({"huggingface": "{"}), file)


def cut_by(count: int) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes()[:-count])


def lines(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(text.encode("utf-8", "surrogateescape"))


GOOD_LINE = json.dumps({"file_name": "all/000.png", "label": "cat"})


@pytest.mark.parametrize(
    ("layout", "damage", "problem"),
    [
        ("webdataset", cut_by(12_000), r"part-000.tar .* as a tar file.*; restore the archive"),
        ("parquet", cut_by(20), r"cannot be read as Parquet: .*; restore the file"),
        ("parquet", bad_metadata, "cannot be read as Parquet with metadata of Hugging Face"),
        ("csv", lines('file_name,label\n"open,cat\n'), "cannot be read as a table"),
        ("csv", lines("file_name,label,label\na,b,c\n"), "has 2 columns named 'label' vs one; rename the others"),
        ("csv", lines(""), "has no columns, expected those of files and labels"),
        ("csv", lines("file_name,label\n\udcff,cat\n"), "save it as CSV in UTF-8"),
        ("jsonl", lines(f"{GOOD_LINE}\n{'[' * 100_000}\n"), "line 2 (is|cannot)"),
        ("jsonl", lines(f"{GOOD_LINE}\n[1]\n"), "line 2 (is|cannot)"),
        ("jsonl", lines(f'{GOOD_LINE}\n{{"file_name": 1}}\n'), "0 classes|1 class"),
    ],
)
def test_a_damaged_file(tmp_path: Path, layout: str, damage: Callable[[Path], object], problem: str) -> None:
    folder = LAYOUTS[layout](tmp_path / "raw", images())
    (file,) = (path for path in folder.iterdir() if path.is_file())
    damage(file)
    with pytest.raises(SourceError, match=problem):
        opened(folder)


def test_labels_of_parquet_that_have_no_name(tmp_path: Path) -> None:
    folder = as_parquet(tmp_path / "raw", images())
    (file,) = folder.iterdir()
    content = pq.read_table(file)
    labels = [-1, 3, *content.column("label").to_pylist()[2:]]
    pq.write_table(content.set_column(1, content.schema.field("label"), pa.array(labels)), file)
    assert list(reasons(opened(folder)).values()) == [
        "has the label -1, expected 0 to 2",
        "has the label 3, expected 0 to 2",
    ]
    pq.write_table(content.set_column(1, content.schema.field("label"), pa.array([-1] * 60)), folder / "test.parquet")
    file.rename(folder / "train.parquet")
    source = opened(folder, test_share=0.2)
    assert (source.read, len(reasons(source))) == (60, 2)
    assert "the split test has no labels, so it is not read" in source.notes()


def test_equal_images_are_decoded_once(tmp_path: Path) -> None:
    numbers = [{2: 0, 3: 0, 5: 0, 30: 10}.get(at, at) for at in range(60)]
    every = [{"bytes": b"" if number == 40 else encoded(drawn(number)), "path": ""} for number in numbers]
    (tmp_path / "raw").mkdir()
    labels = ["cat" if number in (0, 10) else CLASSES[number % 3] for number in numbers]
    pq.write_table(pa.table({"image": every, "label": labels}), tmp_path / "raw" / "a.parquet")
    source = opened(tmp_path / "raw", test_share=0.3)
    rows = source.images.column("row")
    assert rows[2] == rows[3] == rows[0] == rows[5] < rows[10] == rows[30]
    assert len(set(rows.tolist())) == 60 - 4  # one of them has none
    assert sum(pixels == source.pixels(np.array([0]))[0].tobytes() for _, _, pixels in records(source)) == 4
    assert list(reasons(source).values()) == ["is empty"]


def test_every_file_that_pillow_decodes_is_a_picture(real_data: Path) -> None:
    folder = real_data / "own" / "format_zoo_good"
    if not folder.is_dir():
        pytest.skip(f"no images of other people at {folder}; set PODLINE_REAL_DATA")
    kinds = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
    files = [path for path in folder.rglob("*") if path.suffix.lower() in kinds]
    refused = {}
    for path in files:
        try:
            picture_of(path.read_bytes())
        except ValueError as error:
            refused[path.name] = str(error)
    assert len(files) > 150
    # L*a*b*, signed and floating-point numbers, planes of 16 bits: refused with these reasons
    assert len(refused) <= 0.07 * len(files), refused


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
        (
            lambda f: features(f, other={"image": {}}),
            r"each of image and other is an encoded image; .*file_column=",
        ),
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
