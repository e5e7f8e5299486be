"""Augments batches of images in NumPy; each example has its own random draws.

The draws depend only on the seed, the epoch and the example's id; see :mod:`podline.data.order`. So the augmented image
is the same in any batch, and whenever the batch is made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from podline.base import entry_points
from podline.base.arrays import Ids, Pixels
from podline.base.errors import SettingsError
from podline.base.frozen import Json
from podline.data.records import IMAGE
from podline.documents.manifest import Manifest
from podline.input.chance import Chance
from podline.input.colours import draw_colours, recoloured
from podline.input.mixing import rectangles
from podline.input.rand_augment import rand_augmented
from podline.recipes.parts import AUGMENTATIONS
from podline.recipes.settings import AugmentationSettings, Recipe

Arrays = dict[str, npt.NDArray[Any]]

# Number of images per step: few enough that intermediate arrays stay in the processor's cache and in memory that NumPy
# already has. A batch of 512 at once took twice as long.
_BLOCK = 128


def augment(
    images: Pixels, ids: Ids, settings: AugmentationSettings, seed: int, epoch: int, fill: npt.NDArray[np.uint8]
) -> Pixels:
    """Return copies of images, uint8 (n, height, width, channels), augmented as the settings say; the shape stays.

    ``ids`` are the examples' ids, (n,), see :meth:`podline.data.order.TrainingOrder.batch`; ``fill`` is the colour of
    cut-out squares and of areas from outside an image, uint8 (channels,).

    Raises:
        SettingsError: ``pad`` or ``cutout`` is not less than both sides; or hue or saturation is set for images without
            three channels.
    """
    _require_fit(settings, *images.shape[1:])
    augmented = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        chance = Chance(seed, epoch, ids[block])
        if settings.crop:
            part = _resized_crops(images[block], settings.crop, settings.crop_ratio, chance)
        else:
            part = _cropped(images[block], settings.pad, chance) if settings.pad else images[block].copy()
        if settings.flip:
            _flip(part, _mirrored(chance, alternate=settings.alternate))
        if settings.rand_augment:
            part = rand_augmented(part, settings.rand_augment, settings.magnitude, fill, chance.named("rand_augment "))
        if settings.colours:
            part = recoloured(part, draw_colours(chance, part.shape[-1], **settings.colours))
        if settings.cutout:
            _cut_out(part, settings.cutout, fill, chance)
        if settings.erase:
            _erase(part, settings.erase, chance.named("erase "))
        augmented[block] = part
    return augmented


def with_installed(arrays: Arrays, also: Mapping[str, Json], chance: Chance) -> Arrays:
    """Apply the augmentations of installed packages (``also``: name → amount), sorted by name.

    Only height and width of images may change.

    Raises:
        SettingsError: an augmentation does not exist or fails, or its result has other fields, types or shapes than the
            given arrays.
    """
    for name in sorted(also):
        function, draws = _installed(name), replace(chance, prefix=f"{name}/")
        with entry_points.explained(f"{AUGMENTATIONS.title(name)}, {also[name]!r}"):
            made = {field: np.asarray(values) for field, values in function(dict(arrays), draws, also[name]).items()}
        found, expected = _form(made), _form(arrays)
        if found != expected:
            raise SettingsError(
                f"augmentation {name} gives {found}, expected {expected}: it must keep the fields with their types and "
                "shapes, except for the height and width of the image"
            )
        arrays = made
    return arrays


def scaled_shape(shape: tuple[int, ...], longer: int) -> tuple[int, int, int]:
    """Return an image shape whose longer side has ``longer`` pixels; 0 leaves the shape unchanged."""
    height, width, channels = shape
    factor = longer / max(height, width) if longer else 1
    return max(round(factor * height), 1), max(round(factor * width), 1), channels


def resized(images: Pixels, shape: tuple[int, ...]) -> Pixels:
    """Resize images (n, height, width, channels) to ``shape``: area averages to shrink, linear to enlarge."""
    if images.shape[1:] == tuple(shape):
        return images
    height, width = shape[:2]
    how = cv2.INTER_AREA if height < images.shape[1] else cv2.INTER_LINEAR
    made = np.empty((len(images), *shape), images.dtype)
    for image, target in zip(images, made, strict=True):
        target[:] = cv2.resize(image, (width, height), interpolation=how).reshape(shape)
    return made


def augmented(
    arrays: Arrays, ids: Ids, settings: AugmentationSettings, seed: int, epoch: int, manifest: Manifest
) -> Arrays:
    """Augment each example; then apply augmentations of installed packages; then resize the images.

    Raises:
        SettingsError: see :func:`augment` and :func:`with_installed`.
    """
    images = augment(arrays[IMAGE], ids, settings, seed, epoch, np.array(manifest.mean_colour, np.uint8))
    made = with_installed(arrays | {IMAGE: images}, settings.also, Chance(seed, epoch, ids))
    return made | {IMAGE: resized(made[IMAGE], scaled_shape(made[IMAGE].shape[1:], settings.image_size))}


def require_room(recipe: Recipe, manifest: Manifest) -> None:
    """Check on a blank image that the augmentation works for images of this shape.

    Raises:
        SettingsError: see :func:`augmented`.
    """
    blank = {info.name: np.zeros((1, *info.shape), info.dtype) for info in manifest.fields}
    augmented(blank, np.zeros(1, np.int64), recipe.augmentation, recipe.seed, 0, manifest)


@functools.cache
def _installed(name: str) -> Callable[[Arrays, Chance, Json], Arrays]:
    function: Any = AUGMENTATIONS.load(name)
    return function


def _form(arrays: Arrays) -> dict[str, str]:
    """Return the properties of each field that an augmentation must keep."""
    return {
        name: f"{values.dtype} {(len(values), *values.shape[3 if name == IMAGE else 1 :])}"
        for name, values in sorted(arrays.items())
    }


def _require_fit(settings: AugmentationSettings, height: int, width: int, channels: int) -> None:
    for name, size in (("pad", settings.pad), ("cutout", settings.cutout)):
        if size >= min(height, width):
            raise SettingsError(
                f"augmentation: got {name}={size} for images of {height} × {width}, expected less than both sides; "
                f"lower augmentation.{name}"
            )
    for name in ("saturation", "hue"):
        if settings.colours.get(name) and channels != 3:
            raise SettingsError(
                f"augmentation: got {name}={settings.colours[name]:g} for images of {channels} channel, expected 3; "
                f"set augmentation.{name}=0"
            )


def _resized_crops(images: Pixels, smallest: float, ratio: float, chance: Chance) -> Pixels:
    """Crop a random window from each image, and resize the window linearly to the image's size.

    Szegedy et al.: "Going deeper with convolutions", CVPR 2015, section 6. A window is at most as long as its image.
    Its share of the area is uniform from ``smallest`` to 1. It is wider or narrower than its image by a factor of at
    most ``ratio``, with uniform logarithm.
    """
    height, width = images.shape[1:3]
    areas = chance.between("crop area", smallest, 1)
    ratios = np.exp(chance.between("crop ratio", -np.log(ratio), np.log(ratio)))
    heights = np.clip(np.rint(height * np.sqrt(areas / ratios)), 1, height).astype(np.int64)
    widths = np.clip(np.rint(width * np.sqrt(areas * ratios)), 1, width).astype(np.int64)
    tops = (chance.between("crop top", 0, 1) * (height - heights + 1)).astype(np.int64)
    lefts = (chance.between("crop left", 0, 1) * (width - widths + 1)).astype(np.int64)
    made = np.empty_like(images)
    for place, (top, left, high, wide) in enumerate(zip(tops, lefts, heights, widths, strict=True)):
        window = images[place, top : top + high, left : left + wide]
        made[place] = cv2.resize(window, (width, height), interpolation=cv2.INTER_LINEAR).reshape(made[place].shape)
    return made


def _erase(images: Pixels, probability: float, chance: Chance) -> None:
    """Fill a rectangle of randomly chosen images with noise, in place: 2 to 33 % of the area, aspect ratio up to 3.3.

    Zhong et al.: "Random Erasing Data Augmentation", AAAI 2020. Parts outside the image are cut off.
    """
    areas, ratios = chance.between("area", 0.02, 0.33), np.exp(chance.between("ratio", -np.log(3.3), np.log(3.3)))
    covered = rectangles(np.sqrt(areas / ratios), np.sqrt(areas * ratios), chance, images.shape)
    for place in np.flatnonzero(chance.between("chosen", 0, 1) < probability).tolist():
        size = (int(covered[place].sum()), images.shape[-1])
        images[place][covered[place]] = chance.noise("noise", place, math.prod(size)).reshape(size)


def _cropped(images: Pixels, pad: int, chance: Chance) -> Pixels:
    """Cut a window of the original size, uniformly placed, from each image with a reflected border."""
    count, height, width, channels = images.shape
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="reflect")
    lines = padded.reshape(count, height + 2 * pad, -1)
    windows = np.lib.stride_tricks.sliding_window_view(lines, (height, width * channels), axis=(1, 2))
    tops = chance.below("crop top", 2 * pad + 1)
    lefts = chance.below("crop left", 2 * pad + 1)
    return windows[np.arange(count), tops, lefts * channels].reshape(images.shape)


def _mirrored(chance: Chance, *, alternate: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the examples to mirror, (n,): random in each epoch, or random in epoch 0 and then alternating.

    Alternation follows Jordan, K.: "94% on CIFAR-10 in 3.29 Seconds on a Single A100 GPU", 2024: each image is seen
    from both sides before it repeats.
    """
    if alternate:
        return (replace(chance, epoch=0).below("flip", 2) + chance.epoch) % 2 == 1
    return chance.below("flip", 2) == 1


def _flip(images: Pixels, chosen: npt.NDArray[np.bool_]) -> None:
    """Mirror the chosen images left to right, in place."""
    before = images[chosen]
    mirrored = np.empty_like(before)
    for channel in range(images.shape[-1]):  # reversing bytes is much faster than reversing pixels of three bytes
        mirrored[..., channel] = before[:, :, ::-1, channel]
    images[chosen] = mirrored


def _cut_out(images: Pixels, side: int, fill: npt.NDArray[np.uint8], chance: Chance) -> None:
    """Fill a square of each image in place, with its centre anywhere in the image; parts outside are cut off.

    DeVries, Taylor: "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count, height, width, _ = images.shape
    offsets = np.arange(side) - side // 2
    # A row outside becomes the border row, which is in the square as well, since the centre is inside the image.
    rows = np.clip(chance.below("cutout row", height)[:, None] + offsets, 0, height - 1)
    columns = np.clip(chance.below("cutout column", width)[:, None] + offsets, 0, width - 1)
    images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]] = fill
