"""Images that somebody else's code gives become a source that is read by position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reading_case
from published import names_of
from reading_case import changed, counted, read

from podline.base.errors import SettingsError, SourceError
from podline.data.sources.decoded import decoded_source, read_file
from podline.data.sources.source import Source
from podline.recipes.datasets import DataSet
from podline.recipes.official import remarks

TOYS = DataSet("toys", open="")
SPLITS = {"train": ("a.npz", "b.npz"), "test": ("c.npz",)}
RNG = np.random.default_rng(0)
IMAGES = {name: RNG.integers(0, 256, (5, 4, 3, 2), np.uint8) for name in ("a.npz", "b.npz", "c.npz")}
LABELS = [0, 1, 2, 1, 0]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """A folder of three files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, images in IMAGES.items():
        np.savez(folder / name, images=images, labels=LABELS)
    return folder


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(reading_case.__file__).parent))


def opened(raw: Path, read: Any = read, dataset: DataSet = TOYS) -> Source:
    return decoded_source(dataset, str(raw), SPLITS, ("red", "green", "blue"), read, raw.parent / "work")


@pytest.mark.usefixtures("parsed_here")
def test_every_record_is_what_was_given(raw: Path) -> None:
    source = opened(raw)
    train, test = source.splits
    order = np.array([7, 0, 9, 4])
    found = train.read(order)
    np.testing.assert_array_equal(found["image"], np.concatenate([IMAGES["a.npz"], IMAGES["b.npz"]])[order])
    assert found["label"].tolist() == [2, 0, 0, 0]
    assert (names_of(source, "train")[7], len(test)) == ("b.npz[2]", 5)


@pytest.mark.usefixtures("parsed_here")
def test_grey_images_get_a_channel(raw: Path) -> None:
    source = opened(raw, reading_case.grey)
    assert source.splits[0].image_shape == (4, 3, 1)
    np.testing.assert_array_equal(source.splits[1].read(np.arange(5))["image"], IMAGES["c.npz"][..., :1])


@pytest.mark.usefixtures("parsed_here")
def test_a_file_is_decoded_once_until_its_reader_has_another_version(raw: Path) -> None:
    log = raw.parent / "log"
    counting = partial(counted, log)
    assert opened(raw, counting).files == opened(raw, counting).files
    assert sorted(log.read_text().split()) == ["a.npz", "b.npz", "c.npz"]
    opened(raw, counting, DataSet("toys", open="", version=1))
    assert sorted(log.read_text().split()) == sorted(["a.npz", "b.npz", "c.npz"] * 2)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (partial(changed, np.zeros((4, 4, 2), np.uint8), None), r"a.npz: image 3 has the shape 4 × 4 × 2 vs 4 × 3 × 2"),
        (
            partial(changed, np.zeros((4, 3, 2)), None),
            r"a.npz: image 3 is float64 4 × 3 × 2, expected uint8 height × width × channels",
        ),
        (partial(changed, None, 3), r"a.npz: image 3 has the label 3, expected 0 to 2"),
        (partial(changed, None, 1.5), r"a.npz: image 3 has the label 1.5, expected a class number"),
        (partial(changed, None, float("inf")), r"a.npz: image 3 has the label inf, expected a class number"),
        (partial(changed, None, "cat"), r"a.npz: image 3 is of the class 'cat', expected one of 3 classes"),
        (reading_case.failing, r"a.npz cannot be read as images: ZeroDivisionError: division by zero; restore"),
    ],
)
def test_what_cannot_be_is_one_line(raw: Path, reader: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        list(read_file(reader, "classification", ("red", "green", "blue"), raw / "a.npz"))
    assert "\n" not in str(caught.value)


def test_a_reader_that_crashes_or_is_of_no_module_leaves_nothing_behind(raw: Path) -> None:
    with pytest.raises(SourceError, match=r"a.npz crashes its parser \(SIGSEGV\)"):
        opened(raw, reading_case.crashing)
    with pytest.raises(SourceError, match="give a function of a module"):
        opened(raw, lambda _file: [])
    assert not list((raw.parent / "work").glob("*/files.json"))


@pytest.mark.parametrize("splits", [("train", "val", "test"), ("train", "validation"), ("test",), ()])
def test_other_splits_than_podlines_are_refused(raw: Path, splits: Sequence[str]) -> None:
    files = dict.fromkeys(splits, ("a.npz",))
    with pytest.raises(SettingsError, match=r"toys: got files of the splits .*, expected train, test and"):
        decoded_source(TOYS, str(raw), files, (), read, raw.parent / "work")


@pytest.mark.usefixtures("parsed_here")
def test_what_is_bound_into_the_reader_belongs_to_the_key(raw: Path) -> None:
    halves = [opened(raw, partial(reading_case.every, step=step)).splits[1] for step in (1, 2)]
    assert [split.image_shape for split in halves] == [(4, 3, 2), (2, 2, 2)]
    np.testing.assert_array_equal(halves[1].read(np.arange(5))["image"], IMAGES["c.npz"][:, ::2, ::2])


@pytest.mark.usefixtures("parsed_here")
def test_files_that_are_missing_empty_or_of_another_shape_are_named(raw: Path) -> None:
    with pytest.raises(SourceError, match="no file has an image, expected at least one"):
        opened(raw, reading_case.nothing)
    np.savez(raw / "c.npz", images=IMAGES["c.npz"][:, :3], labels=LABELS)
    with pytest.raises(SourceError, match=r"c.npz: images are 3 × 3 × 2 vs 4 × 3 × 2 in .*a.npz"):
        opened(raw)
    (raw / "b.npz").unlink()
    with pytest.raises(SourceError, match=r"raw lacks b.npz; give the folder that holds a.npz, b.npz, c.npz"):
        opened(raw)


@pytest.mark.usefixtures("parsed_here")
def test_an_image_with_two_labels_is_counted_where_it_is_rare_and_refused_where_it_is_not(raw: Path) -> None:
    def save(name: str, numbers: Sequence[int], *labels: int) -> None:
        images = np.array([[n % 256, n // 256, 0, 0] for n in numbers], np.uint8).reshape(-1, 2, 2)
        np.savez(raw / f"{name}.npz", images=images, labels=np.resize(labels, len(numbers)))

    twice = (*range(1000, 1100), 1000)
    for name, numbers in {"a": range(400), "b": (7, 7, 9), "c": twice}.items():
        save(name, numbers, 0)
    assert opened(raw).contradicting == {}
    save("c", twice, *[0] * 100, 1)
    rare = opened(raw)
    assert (rare.contradicting, rare.sizes) == ({"test": 2}, {"train": 403, "test": 101}), "they are converted"
    save("b", (7, 7, 9), 1, 2, 1)
    told = (
        r"5 of the 403 records of the train split have the same image as another record, but another label "
        r"\(such as a.npz\[7\] is 'red' and b.npz\[0\] is 'green'\) vs 1% at most"
    )
    with pytest.raises(SourceError, match=told):
        opened(raw)
    assert remarks("x", {}, (), None, {"test": 2, "train": 1})[1] == (
        "labelled in two ways: 1 record of the train split with the image of another record"
    )
