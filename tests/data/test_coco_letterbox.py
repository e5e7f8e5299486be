from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podline.data.coco_letterbox import LetterBox, from_cells, snapped

letterboxes = st.builds(LetterBox, st.integers(1, 5000), st.integers(1, 5000), st.sampled_from([64, 368, 369]))
places = st.lists(st.tuples(st.floats(-100, 6000), st.floats(-100, 6000)), min_size=1, max_size=5)


@settings(deadline=None)
@given(letterboxes, places)
def test_joints_come_back(letterbox, joints):
    # Two multiplications and four additions of float64; the scale can enlarge the input's rounding errors 5,000 times.
    np.testing.assert_allclose(letterbox.joints_to_image(letterbox.joints_to_network(joints)), joints, atol=1e-7)


@settings(deadline=None)
@given(letterboxes)
def test_the_image_fits_and_is_centred(letterbox):
    (width, height), (left, top), side = letterbox.size, letterbox.offset, letterbox.side
    assert max(width, height) == side
    assert min(width, height) >= 1
    assert 0 <= side - width - 2 * left <= 1
    assert 0 <= side - height - 2 * top <= 1
    box = letterbox.boxes_to_network([0, 0, letterbox.width, letterbox.height])
    assert box.tolist() == pytest.approx([left, top, width, height])
    assert letterbox.areas_to_network(letterbox.width * letterbox.height) == pytest.approx(width * height)


def test_places_are_centres_of_pixels():
    assert from_cells([0, 1], 8).tolist() == [3.5, 11.5]  # a cell of stride 8 covers pixels 0 to 7
    letterbox = LetterBox(184, 92, 368)  # twice as large, 92 rows above
    assert letterbox.joints_to_network([0, 0]).tolist() == [0.5, 92.5]
    assert letterbox.joints_to_network([183, 91]).tolist() == [366.5, 274.5]


@pytest.mark.parametrize(("width", "height"), [(640, 427), (427, 640), (200, 150), (368, 368)])
def test_a_spot_lands_where_its_joint_does(width, height):
    letterbox = LetterBox(width, height, 368)
    image = np.zeros((height, width, 3), np.uint8)
    column, row = width // 3, height // 2
    image[row - 3 : row + 4, column - 3 : column + 4] = 255
    square = letterbox.place(image).astype(np.float64)[..., 0]
    rows, columns = np.indices(square.shape)
    centre = (square * columns).sum() / square.sum(), (square * rows).sum() / square.sum()
    # The scaled spot's pixels are rounded to whole numbers.
    np.testing.assert_allclose(centre, letterbox.joints_to_network([column, row]), atol=0.05)


@pytest.mark.parametrize("scale", [1, 10])
@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_the_square_keeps_channels_and_brightness_and_is_filled_around_the_image(scale, channels):
    width, height = 40 * scale, 30 * scale
    square = LetterBox(width, height, 64).place(np.full((height, width, *channels), 200, np.uint8), fill=7)
    assert square.shape == (64, 64, *channels)
    assert (square[8:56] == 200).all()
    assert (square[:8] == 7).all()
    assert (square[56:] == 7).all()


@pytest.mark.parametrize("side", [500, 368, 256, 128])
def test_an_image_is_shrunk_as_by_a_triangle(side):
    rng = np.random.default_rng(side)
    image = cv2.GaussianBlur(rng.integers(0, 256, (480, 640, 3), np.uint8), (0, 0), 1)  # texture as in a photograph
    image = cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX)
    letterbox = LetterBox(640, 480, side)
    (left, top), (width, height) = letterbox.offset, letterbox.size
    found = letterbox.place(image)[top : top + height, left : left + width]
    wanted = np.einsum(
        "rh,hwc,kw->rkc", triangles(480, height), image.astype(float), triangles(640, width), optimize=True
    )
    error, plain = (np.abs(pixels - wanted).mean() for pixels in (found, cv2.resize(image, (width, height))))
    assert error < 2  # of 255
    assert error < 0.8 * plain  # what linear interpolation alone makes of it


def triangles(length: int, made: int) -> np.ndarray:
    """Weights (made, length) of pixels in shrunk ones: triangles, each as wide as two pixels of the result."""
    factor = length / made
    centres = (np.arange(made) + 0.5) * factor - 0.5
    weights = np.maximum(0, 1 - np.abs(np.arange(length) - centres[:, None]) / factor)
    return weights / weights.sum(axis=1, keepdims=True)


@settings(deadline=None)
@given(st.lists(st.floats(-2000, 2000), min_size=1))
def test_snapping_moves_by_less_than_a_hundredth(values):
    grid = snapped(values)
    assert grid.dtype == np.float32
    np.testing.assert_allclose(grid, values, rtol=0, atol=1 / 128)
    assert (grid * 64 == np.rint(grid * 64)).all()
