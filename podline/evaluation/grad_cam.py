"""Shows where a classifier looks.

Selvaraju et al.: "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization", ICCV 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import keras
import numpy as np
import tensorflow as tf

from podline.arrays import Array, Image

_HEAT = 0.5  # weight of the colours in a picture


def looked_at(model: keras.Model, images: Sequence[Image]) -> list[Image]:
    """Colour the places of images that support a model's answer, from violet (not at all) to yellow (most).

    Args:
        model: a model from uint8 images to logits (n, classes).
        images: uint8 (height, width, channels), all of one shape.

    Returns:
        A picture for each image, uint8 (height, width, 3); empty for a model without spatial maps.
    """
    weights = place_weights(model, np.stack(images))
    return [] if weights is None else [_coloured(*pair) for pair in zip(images, weights, strict=True)]


def place_weights(model: keras.Model, images: Array) -> Array | None:
    """Return how much each place of the model's last maps supports its answer: float32 (n, rows, columns), 0…1."""
    maps = _last_maps(model)
    if maps is None:
        return None
    both = keras.Model(model.inputs[0], [maps, model.outputs[0]])
    with tf.GradientTape() as tape:
        values, logits = both(images, training=False)
        answered = tf.reduce_sum(tf.reduce_max(logits, axis=-1))
    gradient: Any = tape.gradient(answered, values)
    places = tf.nn.relu(tf.reduce_sum(tf.reduce_mean(gradient, (1, 2), keepdims=True) * values, axis=-1)).numpy()
    return places / np.maximum(places.max((1, 2), keepdims=True), np.finfo(np.float32).tiny)


def _last_maps(model: keras.Model) -> Any:
    """Return the last layer output with shape (n, rows, columns, channels), or None."""
    learned = [layer for layer in model.layers if layer.weights]
    first = model.layers.index(learned[0]) if learned else len(model.layers)
    outputs = [layer.output for layer in model.layers[first:]]
    maps = [output for output in outputs if len(getattr(output, "shape", ())) == 4 and min(output.shape[1:3]) > 1]
    return maps[-1] if maps else None


def _coloured(image: Array, weights: Array) -> Image:
    height, width, _ = image.shape
    large = cv2.resize(weights, (width, height), interpolation=cv2.INTER_LINEAR)
    colours = cv2.applyColorMap((255 * large).astype(np.uint8), cv2.COLORMAP_VIRIDIS)[..., ::-1]
    grey = image.mean(-1, keepdims=True)
    return np.asarray(_HEAT * colours + (1 - _HEAT) * grey, np.uint8)
