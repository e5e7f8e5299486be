"""Augmentation is a function of seed, epoch and id, and does what its settings say."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import cv2
import numpy as np
import pytest

from podline.base.errors import SettingsError
from podline.data.order import random_below
from podline.documents.manifest import Manifest
from podline.input.augmentation import augment, augmented
from podline.input.chance import Chance
from podline.input.colours import draw_colours, recoloured
from podline.input.rand_augment import MOST, OPERATIONS, rand_augmented
from podline.recipes.settings import AugmentationSettings

EACH = {
    "crop": AugmentationSettings(crop=0.3),
    "rand_augment": AugmentationSettings(rand_augment=2),
    "brightness": AugmentationSettings(brightness=0.3),
    "contrast": AugmentationSettings(contrast=0.3),
    "saturation": AugmentationSettings(saturation=0.8),
    "hue": AugmentationSettings(hue=0.3),
    "erase": AugmentationSettings(erase=1),
    "pad, flip, cutout": AugmentationSettings(pad=4, flip=True, cutout=8),
    "all at once": AugmentationSettings(pad=4, flip=True, cutout=8, rand_augment=3, magnitude=15, hue=0.1, erase=0.5),
}
GREY = ("crop", "rand_augment", "brightness", "contrast", "erase", "pad, flip, cutout")
FILL = np.array([10, 20, 30], np.uint8)
SEED, EPOCH = 7, 3


def pictures(count: int, shape: tuple[int, int, int] = (32, 32, 3)) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (count, *shape), dtype=np.uint8)


def one_by_one(images: np.ndarray, ids: np.ndarray, settings: AugmentationSettings, fill: np.ndarray) -> np.ndarray:
    """What `augment` should do, written for one image and from the same draws."""

    def draw(purpose: str, bound: int) -> np.ndarray:
        return random_below(SEED, purpose, EPOCH, ids, bound)

    height, width = images.shape[1:3]
    pad, cutout = settings.pad, settings.cutout
    tops, lefts, flips = draw("crop top", 2 * pad + 1), draw("crop left", 2 * pad + 1), draw("flip", 2)
    rows, columns = draw("cutout row", height), draw("cutout column", width)
    made = []
    for number, image in enumerate(images):
        bordered = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
        result = bordered[tops[number] : tops[number] + height, lefts[number] : lefts[number] + width].copy()
        if settings.flip and flips[number]:
            result = result[:, ::-1].copy()
        if cutout:
            top, left = rows[number] - cutout // 2, columns[number] - cutout // 2
            result[max(top, 0) : top + cutout, max(left, 0) : left + cutout] = fill
        made.append(result)
    return np.stack(made)


@pytest.mark.parametrize("shape", [(32, 32, 3), (9, 12, 1)])
@pytest.mark.parametrize(
    "given", [{}, {"pad": 8}, {"flip": True}, {"cutout": 7}, {"pad": 1, "flip": True, "cutout": 8}]
)
def test_the_batch_is_what_one_image_at_a_time_gives(given: dict[str, Any], shape: tuple[int, int, int]) -> None:
    settings = AugmentationSettings(**given)
    images, ids, fill = pictures(200, shape), np.arange(1000, 1200), FILL[: shape[-1]]
    before = images.copy()
    found = augment(images, ids, settings, SEED, EPOCH, fill)
    np.testing.assert_array_equal(found, one_by_one(images, ids, settings, fill))
    np.testing.assert_array_equal(images, before)
    assert found.dtype == np.uint8


@pytest.mark.parametrize(("name", "channels"), [*((each, 3) for each in EACH), *((each, 1) for each in GREY)])
def test_an_example_looks_the_same_in_any_batch_of_its_epoch(name: str, channels: int) -> None:
    images, ids, settings, fill = pictures(150, (32, 32, channels)), np.arange(150) * 3, EACH[name], FILL[:channels]
    before = images.copy()
    whole = augment(images, ids, settings, SEED, EPOCH, fill)
    np.testing.assert_array_equal(images, before)
    shuffled = np.random.default_rng(1).permutation(150)
    made = augment(images[shuffled], ids[shuffled], settings, SEED, EPOCH, fill)
    np.testing.assert_array_equal(made, whole[shuffled])
    for size in (1, 5):
        part = slice(20, 20 + size)
        np.testing.assert_array_equal(augment(images[part], ids[part], settings, SEED, EPOCH, fill), whole[part])
    for key in ((SEED + 1, EPOCH), (SEED, EPOCH + 1)):
        assert (augment(images, ids, settings, *key, fill) != whole).any(axis=(1, 2, 3)).mean() > 0.9


def test_a_crop_is_a_window_of_the_least_area_or_more_and_its_form_is_near_the_image_s() -> None:
    height, width, count = 40, 80, 500
    ramp = np.empty((count, height, width, 3), np.uint8)
    ramp[..., 0], ramp[..., 1], ramp[..., 2] = np.arange(height)[:, None], np.arange(width), 7
    made = augment(ramp, np.arange(count), AugmentationSettings(crop=0.25, crop_ratio=1.5), SEED, EPOCH, FILL)
    assert (made[..., 2] == 7).all()
    heights, widths = (1 + np.ptp(made[..., axis].astype(int), axis=(1, 2)) for axis in (0, 1))
    areas, ratios = heights * widths / (height * width), (widths / width) / (heights / height)
    assert 0.22 < areas.min() < 0.3  # whole pixels
    assert 0.9 < areas.max() <= 1
    assert 1 / 1.6 < ratios.min() < 0.75
    assert 1.33 < ratios.max() < 1.6
    tops, room = made[..., 0].min(axis=(1, 2)), height - heights
    assert (tops[room > 5] / room[room > 5]).mean() == pytest.approx(0.5, abs=0.05)


def test_erasing_fills_a_rectangle_of_some_images_with_noise() -> None:
    images, ids = np.full((1000, 32, 32, 3), 128, np.uint8), np.arange(1000)
    made = augment(images, ids, AugmentationSettings(erase=0.25), SEED, EPOCH, FILL)
    changed = (made != 128).any(axis=-1)
    assert changed.any(axis=(1, 2)).mean() == pytest.approx(0.25, abs=0.04)  # 3 standard deviations
    assert changed.mean(axis=(1, 2)).max() <= 0.34
    for mask in changed:
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert mask.sum() == len(rows) * len(columns)
    noise = made[changed].astype(float)
    assert noise.mean() == pytest.approx(127.5, abs=2)
    assert np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1] == pytest.approx(0, abs=0.05)


def test_mirroring_and_crops_are_fair_and_alternating_mirrors_each_image_in_every_other_pass() -> None:
    count = 8000
    ids, ramp = np.arange(count), np.broadcast_to(np.arange(9, dtype=np.uint8)[:, None], (count, 9, 9, 1))
    lefts = augment(ramp, ids, AugmentationSettings(pad=2), SEED, EPOCH, FILL[:1])[:, 0, 2, 0]
    np.testing.assert_allclose(np.bincount(lefts, minlength=5) / count, 0.2, atol=0.02)  # 4.5 standard deviations
    for settings in (AugmentationSettings(flip=True), AugmentationSettings(flip=True, alternate=True)):
        passes = [augment(ramp, ids, settings, SEED, epoch, FILL[:1])[:, 0, 0, 0] == 8 for epoch in range(4)]
        assert passes[0].mean() == pytest.approx(0.5, abs=0.02)  # 3.6 standard deviations
        assert np.array_equal(passes[1], ~passes[0]) == settings.alternate
    np.testing.assert_array_equal(passes[2:], passes[:2])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"magnitude": 5}, "got magnitude=5 with rand_augment=0, expected rand_augment too"),
        ({"crop": 0.5, "pad": 4}, "pad=4 vs crop=0.5: both choose a window of the image; give one of them"),
        ({"pad": 28}, "got pad=28 for images of 28 × 32"),
        ({"cutout": 28}, "got cutout=28 for images of 28 × 32"),
        ({"hue": 0.2}, "got hue=0.2 for images of 1 channel, expected 3"),
    ],
)
def test_settings_that_fit_neither_each_other_nor_the_images_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, SettingsError), match=words):
        augment(pictures(2, (28, 32, 1)), np.arange(2), AugmentationSettings(**values), SEED, EPOCH, FILL[:1])


@pytest.mark.parametrize(("size", "shape"), [(4, (2, 4, 3)), (16, (8, 16, 3)), (0, (4, 8, 3))])
def test_images_are_resized_last_and_keep_their_form(size: int, shape: tuple[int, ...]) -> None:
    given = np.tile(np.arange(8, dtype=np.uint8)[:, None] * 30, (3, 4, 1, 3))
    manifest = cast(Manifest, SimpleNamespace(mean_colour=(0, 0, 0)))
    settings = AugmentationSettings(image_size=size)
    made = augmented({"image": given}, np.arange(3), settings, 0, 0, manifest)["image"]
    assert made.shape[1:] == shape
    assert made.mean() == pytest.approx(given.mean(), abs=1)


def test_augmenting_needs_no_tensorflow() -> None:
    code = "import sys, podline.input.augmentation; print('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout == b"False\n"


SQUARE = 21


def applied(name: str, image: np.ndarray, strength: float) -> np.ndarray:
    return OPERATIONS[name](image, strength, FILL)


@pytest.fixture(name="dot")
def _dot() -> np.ndarray:
    """A bright dot, right of the middle."""
    image = np.full((SQUARE, SQUARE, 3), 100, np.uint8)
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
    changing = {name for name in OPERATIONS if not np.array_equal(applied(name, dot, 0), dot)}
    assert changing == {"autocontrast", "equalize"}, "nothing changes without strength"


def test_operations_on_colours() -> None:
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


def test_brightness_saturation_and_contrast() -> None:
    grey = np.full((3, 4, 4, 3), 100, np.uint8)
    colours = draw_colours(Chance(0, 0, [0, 1, 2]), brightness=0.2)
    shifts = colours[:, 0, 3]
    assert recoloured(grey, colours)[:, 0, 0].tolist() == [[round(100 + shift)] * 3 for shift in shifts]
    red = np.zeros((3, 4, 4, 3), np.uint8) + np.uint8([200, 0, 0])
    saturated = recoloured(red, draw_colours(Chance(0, 0, [0, 1, 2]), saturation=1))
    luma = saturated[:, 0, 0].astype(float) @ [0.299, 0.587, 0.114]
    # Less saturation keeps a pixel's grey; more is cut at 0.
    assert all((np.abs(luma - 0.299 * 200) < 1) | (saturated[:, 0, 0].min(axis=-1) == 0))
    middle = recoloured(grey + np.uint8(27), draw_colours(Chance(0, 0, [0, 1, 2]), contrast=0.5))
    assert (np.abs(middle.astype(int) - 127) <= 1).all()
    brighter = np.concatenate([np.eye(3), np.full((3, 1), 50.0)], axis=1)[None]
    for matrix, end in ((brighter, 255), (brighter * [1, 1, 1, -1], 0)):
        assert (recoloured(np.full((1, 2, 2, 3), abs(end - 5), np.uint8), matrix) == end).all(), "cut, not wrapped"


def test_hue_turns_colours_and_keeps_greys_and_luma() -> None:
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
