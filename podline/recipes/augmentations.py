"""The settings of random augmentation: the base class of all kinds of task, and the class for classifiers."""

from __future__ import annotations

import functools
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from podline.base.frozen import Frozen, Json, omitted
from podline.recipes.uses import require_effects

_COLOURS = ("brightness", "contrast", "saturation", "hue")


class Augmentation(Frozen):
    """The settings of random augmentation.

    Attributes:
        applied_by: ``module:name`` of a function ``(arrays, ids, settings, seed, epoch, manifest) -> arrays``. Its
            arguments are the fields of a batch by name, the examples' ids (n,), these settings, the run's seed, the
            epoch, and the data set's manifest.
        also: augmentations of installed packages, name → amount; applied after Podline's, in alphabetical order.
        views: number of different augmentations of an image, which the epochs repeat; 0: every epoch has new ones. If
            only the last layers train, a CPU computes the frozen layers once for each image and view.
    """

    applied_by: ClassVar[str]
    beside_images: ClassVar[Literal["unchanged", "moved"] | None] = None
    """The effect of ``applied_by`` on fields other than images, also in batches without images.

    ``unchanged``, or ``moved`` if it moves positions such as joints together with the image; None if unknown.
    """

    also: dict[str, Json] = omitted({})
    views: int = omitted(0, ge=0, le=1000)

    @property
    def colours(self) -> dict[str, float]:
        """Return name → amount of the settings that change colours."""
        return {name: value for name, value in dict(self).items() if name in _COLOURS and value}


class AugmentationSettings(Augmentation):
    """Random augmentation of training images; each example gets its own random numbers.

    Attributes:
        pad: pixels of a reflected border that is added before a random crop of the original size; 0 for off.
        crop: least share of the image's area in a random window, which is resized to the image's size; 0 for off.
        crop_ratio: largest factor by which the window of ``crop`` is wider or narrower than the image.
        flip: mirror left and right with probability one half.
        alternate: with ``flip``: choose randomly in the first epoch which images are mirrored, then alternate.
        rand_augment: number of RandAugment's operations per image (docs/how-to/input.md); 0 for off.
        magnitude: strength of RandAugment's operations, up to 30.
        brightness: add or subtract up to this share of the full range.
        contrast: multiply differences from middle grey by a factor of 1 ± up to this value.
        saturation: multiply differences from a pixel's grey by a factor of 1 ± up to this value.
        hue: rotate colours by up to this share of the colour circle.
        cutout: side in pixels of a square that is filled with the mean colour; 0 for off.
        erase: probability of a rectangle of noise, which covers 2 to 33 % of the area.
        mixup: blend each image and target with those of another example, by shares from Beta(mixup, mixup); 0 for off.
        cutmix: replace a rectangle by that of another image, with area shares from Beta(cutmix, cutmix); 0 for off.
            With ``mixup`` as well, each image randomly gets one of the two.
        image_size: longer side of training images in pixels; 0 keeps the converted size, which evaluation always uses.
    """

    applied_by: ClassVar[str] = "podline.input.augmentation:augmented"
    beside_images = "unchanged"

    pad: int = Field(default=0, ge=0, le=64)
    crop: float = omitted(0.0, ge=0, lt=1)
    crop_ratio: float = omitted(1.33, ge=1, le=4)
    flip: bool = False
    alternate: bool = omitted(False)
    rand_augment: int = omitted(0, ge=0, le=8)
    magnitude: int = omitted(9, ge=0, le=30)
    brightness: float = omitted(0.0, ge=0, le=1)
    contrast: float = omitted(0.0, ge=0, lt=1)
    saturation: float = omitted(0.0, ge=0, le=1)
    hue: float = omitted(0.0, ge=0, le=0.5)
    cutout: int = Field(default=0, ge=0, le=256)
    erase: float = omitted(0.0, ge=0, le=1)
    mixup: float = omitted(0.0, ge=0, le=10)
    cutmix: float = omitted(0.0, ge=0, le=10)
    image_size: int = omitted(0, ge=0, le=4096)

    _effects = model_validator(mode="after")(functools.partial(require_effects, "augmentation"))

    @model_validator(mode="after")
    def _one_window(self) -> AugmentationSettings:
        if self.pad and self.crop:
            raise ValueError(f"pad={self.pad} vs crop={self.crop}: both choose a window of the image; give one of them")
        return self

    @property
    def mixes(self) -> bool:
        """Return whether images are mixed in pairs."""
        return bool(self.mixup or self.cutmix)
