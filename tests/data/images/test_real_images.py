"""Images of other people, in their own layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drawn_images import opened, reasons

from podline.data.pictures import picture_of
from podline.errors import SourceError

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.fixture
def own(real_data: Path) -> Path:
    """The folder of images and annotations of one's own."""
    if not (real_data / "own").is_dir():
        pytest.skip(f"no images of other people at {real_data / 'own'}; set PODLINE_REAL_DATA")
    return real_data / "own"


@pytest.mark.parametrize(
    ("name", "settings", "classes", "some", "sizes"),
    [
        ("ants_bees", {}, 2, "bees", (126, 77)),
        ("flowers_small/flowers", {}, 5, "daisy", (644, 140)),  # its lists name files that are elsewhere
        ("omniglot_small1", {"channels": 1}, 136, "Korean/character01", None),
        ("wds", {}, 10, "9", None),  # samples of another library
    ],
)
def test_class_folders_and_samples(
    own: Path, tmp_path: Path, name: str, settings: dict[str, Any], classes: int, some: str, sizes: tuple[int, int]
) -> None:
    (tmp_path / "raw").symlink_to(own / name)  # the cache is beside it
    source = opened(tmp_path / "raw", **settings)
    assert len(source.class_names) == classes
    assert some in source.class_names
    assert sum(source.sizes.values()) + len(source.quarantined) == source.read >= 90
    assert sizes in (None, tuple(source.sizes.values()))
    if name == "ants_bees":
        assert reasons(source)["train/.DS_Store"] == "is hidden, or the system's own"


def test_boxes_are_no_classes(own: Path, tmp_path: Path) -> None:
    (tmp_path / "raw").symlink_to(own / "bccd")
    for settings, problem in (
        ({}, r"columns of boxes .*'xmin', 'ymin'"),
        ({"labels_are_classes": True}, r"several rows .*'RBC', 'WBC'"),
    ):
        with pytest.raises(SourceError, match=problem):
            opened(tmp_path / "raw", label_column="cell_type", layout="table", **settings)


def test_every_file_that_pillow_decodes_is_a_picture(own: Path) -> None:
    kinds = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
    files = [path for path in (own / "format_zoo_good").rglob("*") if path.suffix.lower() in kinds]
    refused = {}
    for path in files:
        try:
            picture_of(path.read_bytes())
        except ValueError as error:
            refused[path.name] = str(error)
    assert len(files) > 150
    assert len(refused) <= 0.05 * len(files), refused
