"""Networks of ``keras.applications`` for colour images, without their ImageNet classifiers.

Networks are built without weights; a training loads weights from a file, by Keras's layer names. For every data set,
the input is normalised by the constants that Keras trained with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from podline.base.errors import SettingsError
from podline.models.blocks import classifier
from podline.models.keras_internals import fresh_names
from podline.models.weights_files import Layers
from podline.recipes.settings import ModelSettings

APPLICATIONS: dict[str, Callable[..., keras.Model]] = {
    # Howard et al.: "Searching for MobileNetV3", ICCV 2019.
    "mobilenetv3-small": keras.applications.MobileNetV3Small,
    "mobilenetv3-large": keras.applications.MobileNetV3Large,
    # Tan, Le: "EfficientNetV2", ICML 2021.
    "efficientnetv2-b0": keras.applications.EfficientNetV2B0,
    # Liu et al.: "A ConvNet for the 2020s", CVPR 2022.
    "convnext-tiny": keras.applications.ConvNeXtTiny,
}
"""Keras's function for each kind of model."""
SMALLEST_SIDE = 32
_WORD_STARTS = re.compile(r"(?<=.)(?=[A-Z][a-z]+)|(?<=[a-z])(?=[A-Z])")


def application(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build a classifier from a network of ``keras.applications``: average pooling, dropout and a dense layer.

    Raises:
        SettingsError: images are smaller than 32 × 32, or do not have three channels.
    """
    height, width, channels = image_shape
    if min(height, width) < SMALLEST_SIDE or channels != 3:
        raise SettingsError(
            f"model {settings.kind}: images of {height} × {width} × {channels} vs at least {SMALLEST_SIDE} × "
            f"{SMALLEST_SIDE} × 3 (or 1, repeated); choose another model, or larger images"
        )
    options: dict[str, Any] = {"alpha": settings.width} if settings.kind.startswith("mobilenetv3") else {}
    network = named_as_first(_network(APPLICATIONS[settings.kind], image_shape, **options))
    return keras.Model(network.input, classifier(network.outputs[0], classes, settings.dropout))


def weights_of(application: Callable[..., keras.Model], file: Path) -> Layers:
    """Return the weights of an application by layer, from its published file.

    Keras assigns the file's values in the order of layers; the result has layer names as in a new process.
    """
    with fresh_names():
        published = _network(application, (224, 224, 3), weights=str(file))
        network = named_as_first(published)
    network.set_weights(published.get_weights())
    layers: Layers = {}
    for variable in network.weights:
        owner, _, name = variable.path.rpartition("/")
        layers.setdefault(owner, {})[name] = np.asarray(variable)
    return layers


def _network(
    application: Callable[..., keras.Model],
    image_shape: tuple[int, int, int],
    weights: str | None = None,
    **options: float,
) -> keras.Model:
    return application(
        input_shape=image_shape,
        include_top=False,
        include_preprocessing=False,
        weights=weights,
        pooling="avg",
        **options,
    )


def named_as_first(network: keras.Model) -> keras.Model:
    """Return a copy of a network with fresh weights, and with layer names as in a new process.

    Keras numbers unnamed layers throughout a process: ``layer_normalization``, ``layer_normalization_1`` …
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
