"""Class folders become a source; what is left out is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from drawn_images import CLASSES, as_folders, drawn, encoded, images, opened, reasons, records

from podline.base.errors import SourceError
from podline.data.images.layouts.folders import Folders
from podline.data.images.listing import Files, ListedFile
from podline.data.images.settings import ImagesSettings
from podline.data.sources.source import Source

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return as_folders(tmp_path / "raw", images())


def split_folders(folder: Path) -> Path:
    """The same in train/ and test/; every fourth image is to test on."""
    for name, files in images().items():
        for number, (file, data) in enumerate(files.items()):
            as_folders(folder / ("train" if number % 4 else "test"), {name: {file: data}})
    return folder


def test_images_that_are_much_smaller_than_their_squares_are_told(folder: Path) -> None:
    told = opened(folder, side=96).notes()[1]
    assert told.startswith("half of the images are 4")
    assert told.endswith(
        " pixels or smaller, but the side is 96: --set conversion.side=48 trains about 4 times as fast"
    )
    assert "side" not in " ".join(opened(folder, side=64).notes())


def test_classes_are_paths_and_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    nested = as_folders(tmp_path / "a", {f"Latin/{name}": files for name, files in images().items()})
    assert opened(nested).class_names == tuple(f"Latin/{name}" for name in sorted(CLASSES))
    numbered = dict(zip(("2", "10", "1"), images().values(), strict=True))
    assert opened(as_folders(tmp_path / "b", numbered)).class_names == ("1", "2", "10")
    long = dict(zip(("9" * 32, "10", "1e3"), images().values(), strict=True))
    assert opened(as_folders(tmp_path / "c", long)).class_names == ("10", "1000", "9" * 32)


def counted(source: Source) -> int:
    """How many files count as left out."""
    assert source.read == sum(source.sizes.values()) + len(source.quarantined)
    return sum(part.reasons.total() for part in source.left_out)


def test_images_beside_the_class_folders_count_as_left_out(folder: Path, tmp_path: Path) -> None:
    expected = records(opened(folder))
    (folder / "README.md").write_text("words")
    for at, name in enumerate(("loose.jpg", "loose", "cat.DAT")):
        (folder / name).write_bytes(encoded(drawn(700 + at), "JPEG"))
    (folder / "cat" / "page.png").write_text("<html>")
    (folder / "cat" / "phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (folder / "cat" / "phone").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    source = opened(folder)
    assert records(source) == expected
    assert counted(source) == 6
    assert {reasons(source)[name] for name in ("loose.jpg", "loose", "cat.DAT")} == {"lies in no class folder"}
    assert "HEIC" in reasons(source)["cat/phone"]
    split = split_folders(tmp_path / "split")
    as_folders(split / "more", {"cat": {"1.png": encoded(drawn(800))}})
    (split / "train" / "loose.png").write_bytes(encoded(drawn(801)))
    assert counted(opened(split)) == 2


def found(*folders: str) -> Folders | None:
    """What two images in each of some folders are taken for."""
    files = [ListedFile(name, name, 1, 0) for folder in folders for name in (f"{folder}/0.jpg", f"{folder}/1.jpg")]
    return Folders.find(Files("raw", files, files), ImagesSettings())


@pytest.mark.parametrize(
    ("folders", "splits", "classes"),
    [
        ("a b/x b/y", "", "a b/x b/y"),
        ("train/a train/b val/a", "train val", "a b"),
        ("set/train/a set/train/b/c set/test/a", "train test", "a b/c"),
        ("split-1/train/a split-1/train/b split-1/validation/b", "train validation", "a b"),
        ("x/a/Train x/b/Train x/b/Val", "train val", "x/a x/b"),
        ("train/a train/b train/c other", "train", "a b c"),
        ("train_station test_tube cat dog cow", "", "train_station test_tube cat dog cow"),
    ],
)
def test_split_folders_are_found_at_any_depth(folders: str, splits: str, classes: str) -> None:
    layout = found(*folders.split())
    assert layout is not None
    assert layout.splits == set(splits.split())
    assert {item.label for item in layout.items() if item.label and not item.reason} == set(classes.split())


@pytest.mark.parametrize(
    ("folders", "named", "remedy"),
    [
        ("a/train/x a/train/y b/train/x b/val/y", "a/train/, b/train/", "give one of them as the source .a or b."),
        ("train/a train/b extra/train/a extra/train/b extra/train/c", "train/, extra/train/", "give one of them"),
        (
            "cat dog test",
            "whether test/ is a split or a class",
            "no folder is named train.*rename the folder",
        ),
        ("train/a train/b train/val/a train/val/b", "whether train/val/ is", "rename the folder"),
        ("train/test train/cat val/test val/cat", "whether train/test/ is", "rename the folder"),
        ("train/a train/b x y z", "6 of 10 images", r"2 in x/\); move these out"),
        ("train/train/a train/train/b test/test/a", "train/", "give"),
        ("seg_train/seg_train/a seg_train/seg_train/b seg_test/seg_test/a", "seg_train/ and seg_test/", "rename them"),
    ],
)
def test_folders_that_may_be_splits_or_classes_are_refused(folders: str, named: str, remedy: str) -> None:
    with pytest.raises(SourceError, match=remedy) as error:
        found(*folders.split())
    assert named in str(error.value)


def test_split_folders_without_classes_are_no_class_folders_and_one_class_is_named() -> None:
    assert found("train", "test") is None
    for folders in ("images/train images/val", "train/images valid/images", "images"):
        with pytest.raises(SourceError, match="one class, 'images', expected two at least"):
            found(*folders.split())
    for folders in ("raw/train/cat raw/test", "raw/train/cat raw/train"):
        with pytest.raises(SourceError, match="got one class, 'cat', expected two at least"):
            found(*folders.split())


def test_splits_are_those_of_the_folders_also_of_folders_within(tmp_path: Path) -> None:
    folder = split_folders(tmp_path / "parent" / "data set")
    as_folders(folder / "test", {"fish": {"1.png": encoded(drawn(900))}})
    source, parent = opened(folder), opened(folder.parent)
    assert source.sizes == {"train": 45, "test": 15}
    assert "tested on test" in source.notes()[0]
    assert reasons(source) == {"test/fish/1.png": "is of the class 'fish', which no training image is"}
    assert "fish" not in source.class_names
    assert (records(parent), parent.files) == (records(source), source.files)
    shutil.copytree(folder, folder.parent / "more")
    with pytest.raises(SourceError, match=r"several folders have splits.*give one of them"):
        opened(folder.parent)


def test_too_few_classes_or_images_to_test_on(tmp_path: Path) -> None:
    one = as_folders(tmp_path / "one", {"cat": images()["cat"]})
    with pytest.raises(SourceError, match=r"it holds 10 .*; got one class, 'cat', expected two at least; .*; see"):
        opened(one)
    few = as_folders(tmp_path / "few", {"cat": {"1.png": encoded(drawn(1))}, "dog": {"1.png": b"x"}})
    with pytest.raises(SourceError, match=r"1 class .*image, '.*', vs 2 at least; 1 of 2 files are left out"):
        opened(few)
    some = {name: {f"{n}.png": encoded(drawn(3 * at + n)) for n in range(3)} for at, name in enumerate("ab")}
    untested = as_folders(tmp_path / "none", some)
    assert opened(untested, test_share=1e-9).sizes == {"train": 5, "test": 1}
