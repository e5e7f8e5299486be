"""Networks of ``keras.applications``, without their classifiers of ImageNet, for images in colour.

They are built without weights; ``podline train --init FILE`` takes weights from a file. Layers have Keras's names, and
in front of them is the normalisation of pixels that Keras itself trained with, whatever the data set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from podline.errors import SettingsError
from podline.models.blocks import classifier
from podline.recipes.settings import ModelSettings

SMALLEST_SIDE = 32
_WORD_STARTS = re.compile(r"(?<=.)(?=[A-Z][a-z]+)|(?<=[a-z])(?=[A-Z])")


class Pixels(NamedTuple):
    """The constants by which pixels in 0…255 are normalised, per channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


_TO_ONE = Pixels((127.5, 127.5, 127.5), (127.5, 127.5, 127.5))  # from -1 to 1
_IMAGENET = Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
PIXELS = {
    "mobilenetv3-small": _TO_ONE,
    "mobilenetv3-large": _TO_ONE,
    "efficientnetv2-b0": _IMAGENET,
    "convnext-tiny": _IMAGENET,
}
"""By model: ``include_preprocessing`` of each application, as one mean and one deviation per channel."""


def mobilenetv3_small(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Howard et al.: "Searching for MobileNetV3", ICCV 2019."""
    return _classifier(keras.applications.MobileNetV3Small, image_shape, classes, settings, alpha=settings.width)


def mobilenetv3_large(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Howard et al.: "Searching for MobileNetV3", ICCV 2019."""
    return _classifier(keras.applications.MobileNetV3Large, image_shape, classes, settings, alpha=settings.width)


def efficientnetv2_b0(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Tan, Le: "EfficientNetV2", ICML 2021."""
    return _classifier(keras.applications.EfficientNetV2B0, image_shape, classes, settings)


def convnext_tiny(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Liu et al.: "A ConvNet for the 2020s", CVPR 2022."""
    return _classifier(keras.applications.ConvNeXtTiny, image_shape, classes, settings)


def _classifier(
    application: Callable[..., keras.Model],
    image_shape: tuple[int, int, int],
    classes: int,
    settings: ModelSettings,
    **options: Any,
) -> keras.Model:
    """Return an application's layers, the mean of each channel, dropout and a dense layer.

    Raises:
        SettingsError: images that are too small or have no three channels; a width that the network does not have.
    """
    height, width, channels = image_shape
    if min(height, width) < SMALLEST_SIDE or channels != 3:
        raise SettingsError(
            f"model {settings.kind}: images of {height} × {width} × {channels} vs at least "
            f"{SMALLEST_SIDE} × {SMALLEST_SIDE} × 3; take another model, or larger images in colour"
        )
    if "alpha" not in options and settings.width != 1:
        raise SettingsError(f"model {settings.kind}: width={settings.width:g} vs 1, the only width that it has")
    network = application(
        input_shape=image_shape, include_top=False, include_preprocessing=False, weights=None, pooling="avg", **options
    )
    network = named_as_first(network)
    return keras.Model(network.input, classifier(network.outputs[0], classes, settings.dropout))


def named_as_first(network: keras.Model) -> keras.Model:
    """Return a copy without weights, whose layers are named as in a process that has built no other model.

    Keras numbers the layers that have no name of their own: ``layer_normalization``, ``layer_normalization_1`` …
    """
    counts: Counter[str] = Counter()

    def copied(layer: keras.layers.Layer) -> keras.layers.Layer:
        config = layer.get_config()
        unnamed = _WORD_STARTS.sub("_", type(layer).__name__).lower()
        if re.fullmatch(rf"{unnamed}(_\d+)?", layer.name):
            config["name"] = f"{unnamed}_{counts[unnamed]}" if counts[unnamed] else unnamed
            counts[unnamed] += 1
        return type(layer).from_config(config)

    return keras.models.clone_model(network, clone_function=copied)
