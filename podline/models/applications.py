"""Networks of ``keras.applications`` for colour images, without their ImageNet classifiers.

Networks are built without weights; a training loads weights from a file, by Keras's layer names. Unless the recipe sets
``model.normalisation``, the input is normalised by the constants that Keras trained with, for every data set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from podline.base.errors import SettingsError
from podline.models.blocks import classifier
from podline.models.keras_internals import fresh_names
from podline.models.variables import by_layer
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
    network = _network(APPLICATIONS[settings.kind], image_shape, **options)
    return keras.Model(network.input, classifier(network.outputs[0], classes, settings.dropout))


def weights_of(application: Callable[..., keras.Model], file: Path) -> Layers:
    """Return the weights in an application's published file by layer; unnamed layers are numbered from the start."""
    with fresh_names():
        network = _network(application, (224, 224, 3), weights=str(file))
    return {
        layer: {name: variable.numpy() for name, variable in variables.items()}
        for layer, variables in by_layer(network).items()
    }


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
