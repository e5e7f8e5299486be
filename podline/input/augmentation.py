"""Augments batches of images in NumPy; each example has random draws of its own.

An example's draws come from (seed, epoch, its id) alone, see :mod:`podline.data.order`: its picture is the same in
whatever batch it is and however often that batch is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podline.data.order import random_below
from podline.errors import SettingsError
from podline.recipes.settings import AugmentationSettings

Images = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int64]

# Images handled at a time: few enough that what is made on the way stays in the processor's cache and in memory that
# NumPy has already. A batch of 512 in one go took twice as long.
_BLOCK = 128


def augment(
    images: Images, ids: Ids, settings: AugmentationSettings, seed: int, epoch: int, fill: npt.NDArray[np.uint8]
) -> Images:
    """Crop, flip and cut out, each as the settings say.

    Args:
        images: uint8, shape (n, height, width, channels); not changed.
        ids: the examples' ids in their split, shape (n,).
        settings: what to do.
        seed: the run's seed.
        epoch: the pass over the data.
        fill: colour of the cut-out squares, uint8, shape (channels,).

    Returns:
        A new array, uint8, of the shape of ``images``.

    Raises:
        SettingsError: a border or a square that is as large as the images.
    """
    _require_room(settings, images.shape)
    augmented = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        chance = _Chance(seed, epoch, ids[block])
        part = _cropped(images[block], settings.pad, chance) if settings.pad else images[block].copy()
        if settings.flip:
            _flip(part, chance)
        if settings.cutout:
            _cut_out(part, settings.cutout, fill, chance)
        augmented[block] = part
    return augmented


@dataclass(frozen=True)
class _Chance:
    """The draws of some examples."""

    seed: int
    epoch: int
    ids: Ids

    def below(self, purpose: str, bound: int) -> npt.NDArray[np.int64]:
        """An integer in [0, bound) for each example."""
        return random_below(self.seed, purpose, self.epoch, self.ids, bound)


def _require_room(settings: AugmentationSettings, shape: tuple[int, ...]) -> None:
    height, width = shape[1:3]
    for name, size in (("pad", settings.pad), ("cutout", settings.cutout)):
        if size >= min(height, width):
            raise SettingsError(
                f"augmentation: {name}={size} vs images of {height} × {width}: it must be smaller than both"
            )


def _cropped(images: Images, pad: int, chance: _Chance) -> Images:
    """A window of the original size from the image with a reflected border, anywhere in it with equal probability."""
    count, height, width, channels = images.shape
    lines = _padded(images, pad).reshape(count, height + 2 * pad, -1)
    windows = np.lib.stride_tricks.sliding_window_view(lines, (height, width * channels), axis=(1, 2))
    tops = chance.below("crop top", 2 * pad + 1)
    lefts = chance.below("crop left", 2 * pad + 1)
    return windows[np.arange(count), tops, lefts * channels].reshape(images.shape)


def _padded(images: Images, pad: int) -> Images:
    """``numpy.pad(…, mode="reflect")`` of height and width, in two thirds of its time."""
    count, height, width, channels = images.shape
    padded = np.empty((count, height + 2 * pad, width + 2 * pad, channels), np.uint8)
    rows = padded[:, pad:-pad]
    rows[:, :, pad:-pad] = images
    rows[:, :, :pad] = images[:, :, pad:0:-1]
    rows[:, :, -pad:] = images[:, :, -2 : -pad - 2 : -1]
    padded[:, :pad] = padded[:, 2 * pad : pad : -1]
    padded[:, -pad:] = padded[:, -pad - 2 : -2 * pad - 2 : -1]
    return padded


def _flip(images: Images, chance: _Chance) -> None:
    """Exchanges left and right, in place, of each image with a probability of one half."""
    chosen = chance.below("flip", 2).astype(bool)
    before = images[chosen]
    mirrored = np.empty_like(before)
    for channel in range(images.shape[-1]):  # reversing bytes is much faster than reversing pixels of three bytes
        mirrored[..., channel] = before[:, :, ::-1, channel]
    images[chosen] = mirrored


def _cut_out(images: Images, side: int, fill: npt.NDArray[np.uint8], chance: _Chance) -> None:
    """Fills, in place, a square whose centre is anywhere in the image; what lies outside the image is lost.

    DeVries, Taylor: "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count, height, width, _ = images.shape
    offsets = np.arange(side) - side // 2
    # A row outside becomes the row at the border, which is in the square as well: the centre is inside the image.
    rows = np.clip(chance.below("cutout row", height)[:, None] + offsets, 0, height - 1)
    columns = np.clip(chance.below("cutout column", width)[:, None] + offsets, 0, width - 1)
    images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]] = fill
