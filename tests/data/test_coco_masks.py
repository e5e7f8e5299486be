from __future__ import annotations

import numpy as np
import pytest
from pycocotools import mask as rle

from podline.data.coco_letterbox import LetterBox
from podline.data.sources.coco_masks import ignored_mask
from podline.errors import SourceError

IMAGE = LetterBox(80, 60, 80)  # ten rows above, ten below, not scaled
BOX = [8, 6, 16, 24]


def person(segmentation=None, *, iscrowd=0, num_keypoints=0):
    return {
        "id": 9, "iscrowd": iscrowd, "num_keypoints": num_keypoints, "bbox": BOX, "segmentation": segmentation
    }  # fmt: skip


def corners(left, top, width, height):
    return [left, top, left + width, top, left + width, top + height, left, top + height]


def some_pixels(seed):
    rng = np.random.default_rng(seed)
    pixels = np.zeros((60, 80), np.uint8)
    for _ in range(3):
        top, left = rng.integers(0, 50), rng.integers(0, 70)
        pixels[top : top + rng.integers(1, 30), left : left + rng.integers(1, 30)] = 1
    return np.asfortranarray(pixels)


def compressed(pixels):
    return {"size": [60, 80], "counts": rle.encode(pixels)["counts"].decode()}


def uncompressed(pixels):
    flat = pixels.ravel(order="F")
    borders = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff(np.concatenate([[0], borders, [flat.size]])).tolist()
    return {"size": [60, 80], "counts": [0, *lengths] if flat[0] else lengths}


@pytest.mark.parametrize("form", [compressed, uncompressed])
@pytest.mark.parametrize("seed", range(3))
def test_run_lengths_are_the_pixels_they_count_and_a_cell_holds_its_share(form, seed):
    pixels = some_pixels(seed)
    people, square = [person(form(pixels), iscrowd=1)], np.pad(pixels * 255.0, ((10, 10), (0, 0)))
    assert ignored_mask(people, IMAGE, 1).tolist() == square.tolist()
    cells = square.reshape(10, 8, 10, 8).mean(axis=(1, 3))
    assert ignored_mask(people, IMAGE, 8).tolist() == np.rint(cells).tolist()


def test_polygons_fill_the_pixels_within():
    mask = ignored_mask([person([corners(10, 5, 20, 10), corners(50, 30, 8, 8)])], IMAGE, 1)
    assert (mask[15:25, 10:30] == 255).all()
    assert (mask[40:48, 50:58] == 255).all()
    mask[15:25, 10:30] = mask[40:48, 50:58] = 0
    assert not mask.any()


@pytest.mark.parametrize("outline", [None, [], [[1, 2, 3, 4]]])
def test_without_an_outline_the_box_is_covered(outline):
    mask = ignored_mask([person(outline)], IMAGE, 1)
    assert mask.tolist() == ignored_mask([person([corners(*BOX)])], IMAGE, 1).tolist()
    assert mask.any()
    assert not ignored_mask([], IMAGE, 8).any()


@pytest.mark.parametrize("seed", range(3))
def test_polygons_are_filled_as_coco_fills_them(seed):
    outline = np.random.default_rng(seed).uniform(0, 60, 14).round(2).tolist()
    [drawn] = rle.frPyObjects([outline], 60, 80)
    as_run_lengths = person({"size": [60, 80], "counts": drawn["counts"].decode()}, iscrowd=1)
    assert ignored_mask([person([outline])], IMAGE, 1).tolist() == ignored_mask([as_run_lengths], IMAGE, 1).tolist()


def test_corners_far_outside_are_drawn_in():
    mask = ignored_mask([person([corners(-1e12, -1e12, 2e12, 2e12)])], IMAGE, 1)
    assert (mask[10:70] == 255).all()
    assert not mask[:10].any()


def test_an_enlarged_image_has_an_enlarged_mask():
    small = LetterBox(40, 30, 80)
    mask = ignored_mask([person([corners(10, 10, 20, 10)])], small, 8)
    assert (mask[4:6, 3:7] == 255).all()
    assert not mask[:, 0].any()


@pytest.mark.parametrize(
    ("outline", "message"),
    [
        ({"size": [80, 60], "counts": [4800]}, r"9: run lengths of size \[80, 60\] vs an image of \[60, 80\]"),
        ({"size": [60, 80], "counts": [4800, 5]}, "annotation 9: run lengths add up to 4805 vs 4800 pixels"),
        ({"size": [60, 80], "counts": [4805, -5]}, "annotation 9: run lengths add up to 4800 vs 4800 pixels"),
        ({"size": [60, 80], "counts": "oooo0"}, "annotation 9: run lengths add up to .* vs 4800 pixels"),
    ],
)  # fmt: skip
def test_outlines_that_cannot_be_are_refused_by_name(outline, message):
    with pytest.raises(SourceError, match=message) as caught:
        ignored_mask([person(outline)], IMAGE, 8)
    assert "\n" not in str(caught.value)
