"""Annotations whose numbers are hardly meant are told, with a remedy; annotations of turned images can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from coco_files import people_in
from mice import HEIGHT, WIDTH, annotated, document, opened, written
from PIL import ExifTags, Image

pytestmark = pytest.mark.usefixtures("parsed_here")


def as_shares(made: dict[str, Any], width: float, height: float) -> None:
    for annotation in made["annotations"]:
        annotation["keypoints"] = (np.reshape(annotation["keypoints"], (-1, 3)) / (width, height, 1)).ravel().tolist()


def with_boxes(made: dict[str, Any], box: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    for annotation in made["annotations"]:
        joints = np.reshape(annotation["keypoints"], (-1, 3))
        joints[:, :2] = joints[:, :2] // 3 + 30
        annotation["keypoints"], joints = joints.ravel().tolist(), joints[:, :2]
        low, high = joints.min(axis=0).astype(float) - 1, joints.max(axis=0).astype(float) + 1
        annotation["bbox"] = np.concatenate(box(low, high)).tolist()


def swap(made: dict[str, Any]) -> None:
    for annotation in made["annotations"]:
        joints = np.reshape(annotation["keypoints"], (-1, 3))
        joints[0, 0] = WIDTH - 3
        annotation["keypoints"] = joints[:, [1, 0, 2]].ravel().tolist()


@pytest.mark.parametrize(
    ("change", "scale", "told"),
    [
        (lambda made: with_boxes(made, lambda low, high: (low, high - low)), 1, ""),
        (lambda made: with_boxes(made, lambda low, high: (low - 9, high - low + 18)), 1, ""),  # generous
        (lambda made: as_shares(made, WIDTH, HEIGHT), 1, "within 1 pixel .* from 0 to 1; .* multiply x and y by"),
        (lambda made: as_shares(made, WIDTH / 100, HEIGHT / 100), 4, "within 100 pixels .* in percent"),
        (lambda _made: None, 1, ""),  # small images may have such joints
        (lambda made: with_boxes(made, lambda low, high: (low, high)), 1, "if they were left, top, right and bottom"),
        (
            lambda made: with_boxes(made, lambda low, high: (low / (WIDTH, HEIGHT), (high - low) / (WIDTH, HEIGHT))),
            1,
            "if they were shares of the image",
        ),
        (swap, 1, "inside if x and y were swapped; write x first"),
        (lambda made: as_shares(made, 0.5, 0.5), 1, "have joints outside the image; correct these annotations"),
    ],
)
def test_numbers_that_are_hardly_meant_are_told(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], scale: int, told: str
) -> None:
    made = document()
    for image in made["images"]:
        del image["width"], image["height"]
    change(made)
    source = written(tmp_path / "mice", made)
    for path in (source / "images").iterdir():
        cv2.imwrite(str(path), np.repeat(np.repeat(cv2.imread(str(path)), scale, 0), scale, 1))
    warnings = [*opened(source).warnings]
    assert len(warnings) == bool(told), warnings
    assert all(re.search(told, line) for line in warnings), warnings
    assert warnings == list(opened(source).warnings)


@pytest.mark.parametrize("beyond", [True, False])
def test_annotations_of_turned_images_are_told_and_read(tmp_path: Path, beyond: bool) -> None:
    made, source = document(), tmp_path / "mice"
    written(source, made)
    for image, annotation in zip(made["images"], made["annotations"], strict=True):
        pixels = Image.open(source / "images" / image["file_name"])
        image["file_name"] = image["file_name"].replace("png", "jpg")
        joints = np.reshape(annotation["keypoints"], (-1, 3))
        joints[0] = (5, WIDTH - 2, 2) if beyond else (5, 5, 2)  # of the turned image
        annotation["keypoints"] = joints.ravel().tolist()
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = 6
        pixels.save(source / "images" / image["file_name"], exif=exif)
    [line] = opened(annotated(source, made)).warnings
    assert ("inside the rotated one" if beyond else "are read as stored, as in COCO") in line
    assert "--set conversion.turn=true rotates them" in line
    turned = opened(source, turn=True)
    assert (turned.counted["turned as EXIF says"], [*turned.warnings], turned.quarantined) == (20, [], ())
    for image in (one for images in people_in(turned).values() for one in images):
        assert (image.width, image.height) == (HEIGHT, WIDTH)
        assert json.loads(image.annotations[0])["keypoints"] == made["annotations"][image.id - 1]["keypoints"]
    made["images"][0] |= {"width": WIDTH + 1}
    [record] = opened(annotated(source, made), turn=True).quarantined
    assert record.reason == f"has {HEIGHT}×{WIDTH} pixels vs {WIDTH + 1}×{HEIGHT} in the annotations"
