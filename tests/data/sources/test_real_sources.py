"""The sources against real data, as it was published."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from drawn_images import opened
from published import CIFAR10_BATCHES, CIFAR10_NAMES

from podline.data.pictures import picture_of
from podline.data.sources.opening import open_source


@pytest.fixture
def own(real_data: Path) -> Path:
    """The folder of images and annotations of one's own."""
    if not (real_data / "own").is_dir():
        pytest.skip(f"no images of other people at {real_data / 'own'}; set PODLINE_REAL_DATA")
    return real_data / "own"


def test_cifar10_is_what_its_pickles_hold(real_data: Path, tmp_path: Path) -> None:
    source = open_source("cifar10", str(real_data / "cifar10"), tmp_path / "work")
    assert source.class_names == CIFAR10_NAMES
    folder = real_data / "cifar10" / "cifar-10-batches-py"
    batches = [pickle.loads((folder / name).read_bytes(), encoding="bytes") for name in CIFAR10_BATCHES]
    for split, members in zip(source.splits, (batches[:5], batches[5:]), strict=True):
        rows = np.concatenate([batch[b"data"] for batch in members])
        found = split.read(np.arange(len(split)))
        np.testing.assert_array_equal(found["image"], rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert found["label"].tolist() == [label for batch in members for label in batch[b"labels"]]


@pytest.mark.usefixtures("parsed_here")
@pytest.mark.parametrize(
    ("name", "classes", "first", "sizes"),
    [
        ("ants_bees", 2, "ants", {"train": 126, "test": 77}),
        ("flowers_small/flowers", 5, "daisy", {"train": 644, "test": 140}),
    ],
)
def test_folders_of_other_people(
    own: Path, tmp_path: Path, name: str, classes: int, first: str, sizes: dict[str, int]
) -> None:
    (tmp_path / "raw").symlink_to(own / name)
    source = opened(tmp_path / "raw")
    assert (len(source.class_names), source.class_names[0], source.sizes) == (classes, first, sizes)


def test_turned_photographs_stand_upright(own: Path) -> None:
    pictures = {path.stem: picture_of(path.read_bytes()) for path in (own / "exif_orientation").rglob("*.jpg")}
    assert {picture.turned for picture in pictures.values()} == {True, False}
    for side in ("Landscape", "Portrait"):
        assert len({picture.pixels.shape for name, picture in pictures.items() if name.startswith(side)}) == 1, side
