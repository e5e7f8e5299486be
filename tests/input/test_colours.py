from __future__ import annotations

import cv2
import numpy as np
import pytest

from podline.input.chance import Chance
from podline.input.colours import draw_colours, recoloured

CHANCE = Chance(0, 0, [0, 1, 2])


def test_colours():
    grey = np.full((3, 4, 4, 3), 100, np.uint8)
    colours = draw_colours(CHANCE, brightness=0.2)
    shifts = colours[:, 0, 3]
    assert recoloured(grey, colours)[:, 0, 0].tolist() == [[round(100 + shift)] * 3 for shift in shifts]
    red = np.zeros((3, 4, 4, 3), np.uint8) + np.uint8([200, 0, 0])
    saturated = recoloured(red, draw_colours(CHANCE, saturation=1))
    luma = saturated[:, 0, 0].astype(float) @ [0.299, 0.587, 0.114]
    # Less saturation keeps a pixel's grey; more is cut at 0.
    assert all((np.abs(luma - 0.299 * 200) < 1) | (saturated[:, 0, 0].min(axis=-1) == 0))
    middle = recoloured(grey + np.uint8(27), draw_colours(CHANCE, contrast=0.5))
    assert (np.abs(middle.astype(int) - 127) <= 1).all()


def test_hue_turns_colours_and_keeps_greys_and_luma():
    chance = Chance(0, 0, np.arange(40))
    colours = draw_colours(chance, hue=0.1)
    given = np.full((40, 2, 2, 3), 100, np.uint8)
    given[:, 1] = [140, 100, 80]  # orange
    made = recoloured(given, colours)
    assert (np.abs(made[:, 0].astype(int) - 100) <= 1).all()
    assert np.abs((made[:, 1].astype(float) - given[:, 1]) @ [0.299, 0.587, 0.114]).max() < 1
    hues = np.array([int(cv2.cvtColor(image[1:, :1], cv2.COLOR_RGB2HSV)[0, 0, 0]) for image in made]) * 2.0
    turns = (hues - 20 + 180) % 360 - 180
    drawn = 360 * 0.1 * chance.between("hue", -1, 1)
    assert np.corrcoef(turns, drawn)[0, 1] ** 2 > 0.95  # the circle of HSV is another one
    assert np.abs(np.abs(turns) - np.abs(drawn)).max() < 20


@pytest.mark.parametrize("channels", [1, 3])
def test_no_colour_is_the_image_itself(channels):
    given = np.random.default_rng(0).integers(0, 256, (3, 5, 5, channels), dtype=np.uint8)
    assert np.array_equal(recoloured(given, draw_colours(CHANCE, channels)), given)
    changed = recoloured(given, draw_colours(CHANCE, channels, contrast=0.5, brightness=0.2))
    assert changed.shape == given.shape
    assert not np.array_equal(changed, given)


def test_colours_are_cut_not_wrapped():
    bright = np.full((1, 2, 2, 3), 250, np.uint8)
    matrix = np.concatenate([np.eye(3), np.full((3, 1), 50.0)], axis=1)[None]
    assert (recoloured(bright, matrix) == 255).all()
    assert (recoloured(255 - bright, matrix * [1, 1, 1, -1]) == 0).all()
