"""A picture is fitted into a shape in one way, for conversion and for prediction."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from drawn_images import as_folders, images, opened
from small_dataset import publish_dataset

from podline.data.fitting import fitted
from podline.data.pictures import picture_of
from podline.kinds.classification.predicting import Classes

WHITE = np.full((10, 20, 3), 255, np.uint8)


@pytest.mark.parametrize(("fit", "rows"), [("letterbox", slice(2, 6)), ("crop", slice(0, 8)), ("squeeze", slice(0, 8))])
@pytest.mark.parametrize("channels", [1, 3])
def test_where_a_picture_lies_in_its_square(fit: str, rows: slice, channels: int) -> None:
    expected = np.zeros((8, 8, channels), np.uint8)
    expected[rows] = 255
    np.testing.assert_array_equal(fitted(WHITE, (8, 8, channels), fit), expected)


def test_any_size_fits_without_aliasing() -> None:
    for size in ((1, 1), (1, 40), (40, 1), (3, 300), (300, 3), (8, 8), (7, 9)):
        for fit in ("letterbox", "crop", "squeeze"):
            assert fitted(np.zeros((*size, 3), np.uint8), (8, 8, 3), fit).shape == (8, 8, 3)
    lines = np.zeros((128, 128, 3), np.uint8)
    lines[:, ::2] = 254
    assert np.ptp(fitted(lines, (16, 16, 3), "squeeze")) == 0
    small = cv2.resize(np.array([[[0] * 3, [200] * 3]], np.uint8), (2, 2))
    assert 60 < fitted(small, (8, 8, 3), "squeeze")[0, 3, 0] < 140  # what grows is interpolated


@pytest.mark.usefixtures("parsed_here")
@pytest.mark.parametrize("fit", ["letterbox", "crop", "squeeze"])
def test_prediction_fits_a_picture_as_the_conversion_did(fit: str, tmp_path: Path) -> None:
    raw = as_folders(tmp_path / "raw", images(12))
    source = opened(raw, fit=fit, side=16)
    manifest = publish_dataset(tmp_path / "root")
    fields = tuple(
        field.model_copy(update={"shape": (16, 16, 3)}) if field.name == "image" else field for field in manifest.fields
    )
    reader = Classes(manifest.model_copy(update={"converter": {"fit": fit}, "fields": fields}))
    converted = {image.tobytes() for split in source.splits for image in split.read(np.arange(len(split)))["image"]}
    assert {reader.fed(picture_of(path.read_bytes()).pixels).tobytes() for path in raw.rglob("*.*")} == converted
