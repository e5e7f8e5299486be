"""The linear baseline: one dense layer on the pixels."""

from __future__ import annotations

import keras

from podline.models.blocks import classifier
from podline.recipes.settings import ModelSettings


def linear(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build a softmax regression on the normalised pixels; width, depth and data format have no effect."""
    image = keras.Input(image_shape)
    pixels = keras.layers.Flatten(name="flatten")(image)
    return keras.Model(image, classifier(pixels, classes, settings.dropout))
