"""Defines the constants that normalise pixels for a network: (pixel - mean) / deviation, per channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podline.base.errors import SettingsError
from podline.recipes.settings import ModelSettings


class Pixels(NamedTuple):
    """Mean and deviation per channel, of pixels in 0…255; a single value applies to all channels."""

    mean: Sequence[float]
    std: Sequence[float]


NORMALISATIONS = {
    "imagenet": Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255)),
    "symmetric": Pixels((127.5,), (127.5,)),
    "unit": Pixels((0.0,), (255.0,)),
    "none": Pixels((0.0,), (1.0,)),
}
"""Value of the recipe's setting ``model.normalisation`` → constants."""
_OF_WEIGHTS = {
    "efficientnet-lite0": Pixels((127.0,), (128.0,)),
    "mobilenetv3-small": NORMALISATIONS["symmetric"],
    "mobilenetv3-large": NORMALISATIONS["symmetric"],
    "efficientnetv2-b0": NORMALISATIONS["imagenet"],
    "convnext-tiny": NORMALISATIONS["imagenet"],
}
"""Kind of model → constants that its published weights need, like Keras's ``include_preprocessing``."""


def pixels_of(settings: ModelSettings, data: Pixels, channels: int) -> Pixels:
    """Return the constants of a model, with one value per channel.

    Args:
        settings: the model.
        data: mean and deviation of the training images; used if settings and network have no constants.
        channels: number of channels of the network's input.

    Raises:
        SettingsError: the normalisation is ``imagenet``, and the input does not have three channels.
    """
    kind, name = settings.kind, settings.normalisation
    mean, std = _OF_WEIGHTS.get(kind, data) if name == "auto" else NORMALISATIONS.get(name, data)
    if len(mean) == 1:
        return Pixels(tuple(mean) * channels, tuple(std) * channels)
    if name == "imagenet" and channels != len(mean):
        raise SettingsError(
            f"model.normalisation={name}: got images of {channels} channels, expected {len(mean)}; give symmetric, "
            "unit, none or data"
        )
    return Pixels(mean, std)
