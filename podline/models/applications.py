"""Networks of ``keras.applications`` for colour images, without their ImageNet classifiers.

They are built without weights; ``podline train --init FILE`` loads weights from a file. Layers have Keras's names. The
input is normalised by the constants that Keras trained with, for every data set.
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
    """The constants that normalise pixels in 0…255, per channel."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


_TO_ONE = Pixels((127.5, 127.5, 127.5), (127.5, 127.5, 127.5))  # maps to -1 … 1
_IMAGENET = Pixels((0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255))
PIXELS = {
    "mobilenetv3-small": _TO_ONE,
    "mobilenetv3-large": _TO_ONE,
    "efficientnetv2-b0": _IMAGENET,
    "convnext-tiny": _IMAGENET,
}
"""Constants by model: the application's ``include_preprocessing`` as one mean and one deviation per channel."""


def mobilenetv3_small(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build MobileNetV3-Small. Howard et al.: "Searching for MobileNetV3", ICCV 2019."""
    return _classifier(keras.applications.MobileNetV3Small, image_shape, classes, settings, alpha=settings.width)


def mobilenetv3_large(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build MobileNetV3-Large. Howard et al.: "Searching for MobileNetV3", ICCV 2019."""
    return _classifier(keras.applications.MobileNetV3Large, image_shape, classes, settings, alpha=settings.width)


def efficientnetv2_b0(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build EfficientNetV2-B0. Tan, Le: "EfficientNetV2", ICML 2021."""
    return _classifier(keras.applications.EfficientNetV2B0, image_shape, classes, settings)


def convnext_tiny(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build ConvNeXt-Tiny. Liu et al.: "A ConvNet for the 2020s", CVPR 2022."""
    return _classifier(keras.applications.ConvNeXtTiny, image_shape, classes, settings)


def _classifier(
    application: Callable[..., keras.Model],
    image_shape: tuple[int, int, int],
    classes: int,
    settings: ModelSettings,
    **options: Any,
) -> keras.Model:
    """Build an application with average pooling, dropout and a dense layer.

    Raises:
        SettingsError: images are too small or do not have three channels.
    """
    height, width, channels = image_shape
    if min(height, width) < SMALLEST_SIDE or channels != 3:
        raise SettingsError(
            f"model {settings.kind}: images of {height} × {width} × {channels} vs at least "
            f"{SMALLEST_SIDE} × {SMALLEST_SIDE} × 3; take another model, or larger images in colour"
        )
    network = application(
        input_shape=image_shape, include_top=False, include_preprocessing=False, weights=None, pooling="avg", **options
    )
    network = named_as_first(network)
    return keras.Model(network.input, classifier(network.outputs[0], classes, settings.dropout))


def named_as_first(network: keras.Model) -> keras.Model:
    """Return a copy without weights, with layer names as in a new process.

    Keras numbers unnamed layers over a process: ``layer_normalization``, ``layer_normalization_1`` …
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
