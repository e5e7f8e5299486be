"""Images of other people, in their own layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_images import opened, reasons

from podline.data.images.opening import ImagesSource
from podline.data.pictures import picture_of
from podline.errors import SourceError

pytestmark = pytest.mark.usefixtures("parsed_here")


@pytest.fixture
def own(real_data: Path) -> Path:
    """The folder of images and annotations of one's own."""
    if not (real_data / "own").is_dir():
        pytest.skip(f"no images of other people at {real_data / 'own'}; set PODLINE_REAL_DATA")
    return real_data / "own"


def source_of(own: Path, name: str, tmp_path: Path, **settings: object) -> ImagesSource:
    """A source of that folder; the cache is elsewhere."""
    (tmp_path / "raw").symlink_to(own / name)
    return opened(tmp_path / "raw", **settings)


def test_ants_and_bees(own: Path, tmp_path: Path) -> None:
    source = source_of(own, "ants_bees", tmp_path)
    assert source.class_names == ("ants", "bees")
    assert source.sizes == {"train": 126, "test": 77}
    assert reasons(source)["train/.DS_Store"] == "is hidden, or the system's own"


def test_flowers_whose_lists_name_files_that_are_elsewhere(own: Path, tmp_path: Path) -> None:
    source = source_of(own, "flowers_small/flowers", tmp_path)
    assert (source.class_names[0], len(source.class_names), source.sizes) == ("daisy", 5, {"train": 644, "test": 140})


def test_characters_of_many_alphabets(own: Path, tmp_path: Path) -> None:
    source = source_of(own, "omniglot_small1", tmp_path, channels=1)
    assert len(source.class_names) == 136
    assert "Korean/character01" in source.class_names
    assert sum(source.sizes.values()) + len(source.quarantined) == source.read == 2_720


def test_samples_of_another_library(own: Path, tmp_path: Path) -> None:
    source = source_of(own, "wds", tmp_path)
    assert source.class_names == tuple("0123456789")
    assert sum(source.sizes.values()) == 90


def test_boxes_are_no_classes(own: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"columns of boxes .*'xmin', 'ymin'"):
        source_of(own, "bccd", tmp_path, label_column="cell_type", layout="table")
    with pytest.raises(SourceError, match=r"several rows .*'RBC', 'WBC'"):
        opened(tmp_path / "raw", label_column="cell_type", layout="table", labels_are_classes=True)


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


def test_orientations(own: Path) -> None:
    files = sorted((own / "exif_orientation").rglob("*.jpg"))
    pictures = {path.stem: picture_of(path.read_bytes()) for path in files}
    assert {picture.turned for picture in pictures.values()} == {True, False}
    for side in ("Landscape", "Portrait"):
        shapes = {picture.pixels.shape for name, picture in pictures.items() if name.startswith(side)}
        assert len(shapes) == 1, side
