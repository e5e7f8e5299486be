from __future__ import annotations

import numpy as np
import pytest

from podline.input.chance import Chance
from podline.input.rand_augment import MOST, OPERATIONS, rand_augmented

FILL = np.array([10, 20, 30], np.uint8)
SIDE = 21


def applied(name: str, image: np.ndarray, strength: float) -> np.ndarray:
    return OPERATIONS[name](image, strength, FILL)


@pytest.fixture(name="dot")
def _dot() -> np.ndarray:
    """A bright dot, right of the middle."""
    image = np.full((SIDE, SIDE, 3), 100, np.uint8)
    image[10, 16] = 200
    return image


def place(image: np.ndarray) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(image[..., 0].argmax(), image.shape[:2]))


def test_geometry(dot: np.ndarray) -> None:
    assert place(applied("rotate", dot, 1)) == (7, 15)  # by 30 degrees: 6 · (cos, -sin) from the middle
    assert place(applied("rotate", dot, -1)) == (13, 15)
    assert place(applied("translate x", dot, 2 / 9)) == (10, 14)  # a tenth of the width
    assert place(applied("translate y", dot, -2 / 9)) == (12, 16)
    assert place(applied("shear y", dot, 1)) == (8, 16)
    assert place(applied("shear x", dot, 1)) == (10, 16)  # the middle row stays
    assert (applied("translate x", dot, 1)[:, -1] == FILL).all()


def test_colours() -> None:
    image = np.zeros((4, 4, 3), np.uint8) + np.uint8([100, 150, 200])
    assert applied("brightness", image, 0.1)[0, 0].tolist() == [109, 164, 218]
    assert applied("brightness", image, -1)[0, 0].tolist() == [10, 15, 20]
    assert applied("contrast", image, -1)[0, 0].tolist() == [145, 150, 155]
    grey = applied("saturation", image, -1)[0, 0].astype(int)
    assert np.ptp(grey) == 10
    assert applied("solarize", image, 0.3)[0, 0].tolist() == [100, 150, 55]
    assert applied("posterize", image, 1)[0, 0].tolist() == [96, 144, 192]
    assert applied("posterize", image, 0.25)[0, 0].tolist() == [100, 150, 200]
    assert np.array_equal(applied("identity", image, 1), image)
    assert np.array_equal(applied("autocontrast", image, 1), image)


def test_operations_on_ranges(dot: np.ndarray) -> None:
    assert np.unique(applied("autocontrast", dot, 0)).tolist() == [0, 255]
    assert applied("sharpness", dot, 1)[10, 16, 0] == 255
    assert applied("sharpness", dot, -1)[10, 16, 0] < 150
    ramp = np.repeat(np.arange(64, 128, dtype=np.uint8), 3).reshape(8, 8, 3)
    assert np.allclose(np.diff(applied("equalize", ramp, 0)[..., 0].ravel().astype(int)), 4, atol=1)


def test_each_image_has_operations_of_its_own_and_all_are_drawn(dot: np.ndarray) -> None:
    images = np.tile(dot, (600, 1, 1, 1))
    images[:, :5, :5] = [250, 60, 20]
    made = rand_augmented(images, 1, MOST, FILL, Chance(0, 0, np.arange(600)))
    kinds = {image.tobytes() for image in made}
    assert len(kinds) == len(OPERATIONS) + 9  # those with a sign give two pictures
    twice = rand_augmented(images, 2, MOST, FILL, Chance(0, 0, np.arange(600)))
    assert len({image.tobytes() for image in twice}) > 3 * len(kinds)


def test_without_strength_most_operations_change_nothing(dot: np.ndarray) -> None:
    changing = {name for name in OPERATIONS if not np.array_equal(applied(name, dot, 0), dot)}
    assert changing == {"autocontrast", "equalize"}
