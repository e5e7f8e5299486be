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


def test_an_example_looks_the_same_in_any_batch() -> None:
    images, ids = pictures(64), np.arange(64) * 3
    whole = augment(images, ids, ALL, SEED, EPOCH, FILL)
    shuffled = np.random.default_rng(1).permutation(64)
    np.testing.assert_array_equal(augment(images[shuffled], ids[shuffled], ALL, SEED, EPOCH, FILL), whole[shuffled])
    for size in (1, 5):
        part = slice(20, 20 + size)
        np.testing.assert_array_equal(augment(images[part], ids[part], ALL, SEED, EPOCH, FILL), whole[part])


@pytest.mark.parametrize(("seed", "epoch"), [(SEED + 1, EPOCH), (SEED, EPOCH + 1)])
def test_another_seed_or_epoch_is_another_picture(seed: int, epoch: int) -> None:
    images, ids = pictures(64), np.arange(64)
    first, other = (augment(images, ids, ALL, *key, FILL) for key in ((SEED, EPOCH), (seed, epoch)))
    assert (first != other).any(axis=(1, 2, 3)).mean() > 0.9


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
