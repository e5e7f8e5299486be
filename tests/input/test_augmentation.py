from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from podline.data.order import random_below
from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.input.augmentation import augment, augmented
from podline.recipes.settings import AugmentationSettings

ALL = AugmentationSettings(pad=4, flip=True, cutout=8)
EACH = {
    "crop": AugmentationSettings(crop=0.3),
    "rand_augment": AugmentationSettings(rand_augment=2),
    "brightness": AugmentationSettings(brightness=0.3),
    "contrast": AugmentationSettings(contrast=0.3),
    "saturation": AugmentationSettings(saturation=0.8),
    "hue": AugmentationSettings(hue=0.3),
    "erase": AugmentationSettings(erase=1),
    "all at once": AugmentationSettings(pad=4, flip=True, cutout=8, rand_augment=3, magnitude=15, hue=0.1, erase=0.5),
}
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


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (9, 12, 3)])
@pytest.mark.parametrize(
    "settings",
    [
        AugmentationSettings(),
        AugmentationSettings(pad=1),
        AugmentationSettings(pad=8),
        AugmentationSettings(flip=True),
        AugmentationSettings(cutout=1),
        AugmentationSettings(cutout=7),
        ALL,
    ],
    ids=str,
)
def test_the_batch_is_what_one_image_at_a_time_gives(
    settings: AugmentationSettings, shape: tuple[int, int, int]
) -> None:
    images, ids, fill = pictures(200, shape), np.arange(1000, 1200), FILL[: shape[-1]]
    before = images.copy()
    found = augment(images, ids, settings, SEED, EPOCH, fill)
    np.testing.assert_array_equal(found, one_by_one(images, ids, settings, fill))
    np.testing.assert_array_equal(images, before)
    assert found.dtype == np.uint8


@pytest.mark.parametrize("settings", [ALL, *EACH.values()], ids=["crop, flip, cutout", *EACH])
def test_an_example_looks_the_same_in_any_batch(settings: AugmentationSettings) -> None:
    images, ids = pictures(150), np.arange(150) * 3
    before = images.copy()
    whole = augment(images, ids, settings, SEED, EPOCH, FILL)
    np.testing.assert_array_equal(images, before)
    shuffled = np.random.default_rng(1).permutation(150)
    made = augment(images[shuffled], ids[shuffled], settings, SEED, EPOCH, FILL)
    np.testing.assert_array_equal(made, whole[shuffled])
    for size in (1, 5):
        part = slice(20, 20 + size)
        np.testing.assert_array_equal(augment(images[part], ids[part], settings, SEED, EPOCH, FILL), whole[part])


@pytest.mark.parametrize("settings", [ALL, *EACH.values()], ids=["crop, flip, cutout", *EACH])
@pytest.mark.parametrize(("seed", "epoch"), [(SEED + 1, EPOCH), (SEED, EPOCH + 1)])
def test_another_seed_or_epoch_is_another_picture(seed: int, epoch: int, settings: AugmentationSettings) -> None:
    images, ids = pictures(64), np.arange(64)
    first, other = (augment(images, ids, settings, *key, FILL) for key in ((SEED, EPOCH), (seed, epoch)))
    assert (first != other).any(axis=(1, 2, 3)).mean() > 0.9


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


@pytest.mark.parametrize("name", ["saturation", "hue"])
def test_colours_of_grey_images_are_refused(name: str) -> None:
    words = f"augmentation: got {name}=0.2 for images of 1 channel, expected 3; set augmentation.{name}=0"
    with pytest.raises(SettingsError, match=words):
        augment(pictures(2, (8, 8, 1)), np.arange(2), AugmentationSettings(**{name: 0.2}), SEED, EPOCH, FILL[:1])


def test_grey_images_are_augmented() -> None:
    settings = AugmentationSettings(crop=0.5, rand_augment=8, brightness=0.1, contrast=0.1, erase=1)
    assert augment(pictures(50, (16, 16, 1)), np.arange(50), settings, SEED, EPOCH, FILL[:1]).shape == (50, 16, 16, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"crop_ratio": 2}, "crop_ratio=2.0 vs crop=0, which it is a part of; give crop too"),
        ({"magnitude": 5}, "magnitude=5 vs rand_augment=0, which it is a part of; give rand_augment too"),
        ({"crop": 0.5, "pad": 4}, "pad=4 vs crop=0.5: both choose a window of the image; give one of them"),
        ({"crop": 1}, "less than 1"),
        ({"hue": 0.6}, "less than or equal to 0.5"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AugmentationSettings.model_validate(values)


def test_what_is_off_is_not_in_a_recipe_s_document() -> None:
    assert set(AugmentationSettings().model_dump()) == {"pad", "flip", "cutout"}


def test_chance_is_fair() -> None:
    count = 8000
    ramp = np.broadcast_to(np.arange(9, dtype=np.uint8)[None, None, :, None], (count, 9, 9, 1))
    ids = np.arange(count)
    mirrored = augment(ramp, ids, AugmentationSettings(flip=True), SEED, EPOCH, FILL[:1])[:, 0, 0, 0] == 8
    assert mirrored.mean() == pytest.approx(0.5, abs=0.02)  # 3.6 standard deviations
    lefts = augment(ramp, ids, AugmentationSettings(pad=2), SEED, EPOCH, FILL[:1])[:, 0, 2, 0]
    np.testing.assert_allclose(np.bincount(lefts, minlength=5) / count, 0.2, atol=0.02)  # 4.5 standard deviations


@pytest.mark.parametrize("setting", [{"pad": 28}, {"cutout": 28}])
def test_what_is_as_large_as_the_image_is_refused(setting: dict[str, int]) -> None:
    name = next(iter(setting))
    with pytest.raises(SettingsError, match=f"{name}=28 vs images of 28 × 32: it must be smaller than both"):
        augment(pictures(2, (28, 32, 1)), np.arange(2), AugmentationSettings(**setting), SEED, EPOCH, FILL[:1])


def test_alternating_mirrors_each_image_in_every_other_pass_and_half_of_them_in_the_first() -> None:
    ids, images = np.arange(2_000), np.broadcast_to(np.arange(9, dtype=np.uint8)[:, None], (2_000, 9, 9, 1))
    settings = AugmentationSettings(flip=True, alternate=True)
    passes = [augment(images, ids, settings, SEED, epoch, FILL[:1])[:, 0, 0, 0] == 8 for epoch in range(4)]
    assert 0.45 < passes[0].mean() < 0.55
    np.testing.assert_array_equal(passes[1], ~passes[0])
    np.testing.assert_array_equal(passes[2:], passes[:2])


@pytest.mark.parametrize(("size", "shape"), [(4, (2, 4, 3)), (16, (8, 16, 3)), (0, (4, 8, 3))])
def test_images_are_resized_last_and_keep_their_form(size: int, shape: tuple[int, ...]) -> None:
    given = np.tile(np.arange(8, dtype=np.uint8)[:, None] * 30, (3, 4, 1, 3))
    manifest = cast(Manifest, SimpleNamespace(mean_colour=(0, 0, 0)))
    settings = AugmentationSettings(image_size=size)
    made = augmented({"image": given}, np.arange(3), settings, 0, 0, manifest)["image"]
    assert made.shape[1:] == shape
    assert made.mean() == pytest.approx(given.mean(), abs=1)


def test_alternating_without_mirroring_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alternate=true vs flip=false"):
        AugmentationSettings(alternate=True)


def test_augmenting_needs_no_tensorflow() -> None:
    code = "import sys, podline.input.augmentation; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "False"
