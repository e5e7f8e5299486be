"""Computes Grad-CAM: shows which regions of an image support a classifier's answer.

Selvaraju et al.: "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization", ICCV 2017.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Image
from podline.models.opened import InnerOutput, OpenedModel

_HEAT = 0.5  # weight of the colours in a picture


def saliency(model: keras.Model, images: Sequence[Image]) -> list[Image]:
    """Colour images by how much each region supports the model's answer, from violet (not at all) to yellow (most).

    Args:
        model: a model from uint8 images to logits (n, classes).
        images: uint8 (height, width, channels), all of one shape.

    Returns:
        A picture for each image, uint8 (height, width, 3); no pictures if the model has no spatial feature maps, or its
            output is not a vector.
    """
    weights = place_weights(model, np.stack(images))
    return [] if weights is None else [_coloured(*pair) for pair in zip(images, weights, strict=True)]


def place_weights(model: keras.Model, images: Array) -> Array | None:
    """Return how much each cell of the last feature maps, if any, supports the answer: float32 (n, rows, columns)."""
    with tf.GradientTape() as tape:
        logits, inner = OpenedModel(model)(tf.constant(images), training=False)
        answers = tf.nest.flatten(logits)[0]
        answered = tf.reduce_sum(tf.reduce_max(answers, axis=-1))
    maps = _last_maps(inner)
    if maps is None or answers.shape.rank != 2:
        return None
    gradient: Any = tape.gradient(answered, maps, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    places = tf.nn.relu(tf.reduce_sum(tf.reduce_mean(gradient, (1, 2), keepdims=True) * maps, axis=-1)).numpy()
    return places / np.maximum(places.max((1, 2), keepdims=True), np.finfo(np.float32).tiny)


def _last_maps(inner: Sequence[InnerOutput]) -> Any:
    """Return the last output with shape (n, rows, columns, channels) after a layer with weights, or None.

    Return None if later layers mix the cells as a sequence, such as attention over patches of an image.
    """
    learned = [bool(getattr(output.operation, "weights", ())) for output in inner]
    first = learned.index(True) if True in learned else len(inner)
    maps = [place for place in range(first, len(inner)) if _is_map(inner[place].value)]
    if not maps:
        return None
    after = zip(inner[maps[-1] + 1 :], learned[maps[-1] + 1 :], strict=True)
    mixed = any(learns and len(output.value.shape) == 3 for output, learns in after)
    return None if mixed else inner[maps[-1]].value


def _is_map(value: Any) -> bool:
    return len(value.shape) == 4 and min(value.shape[1:3]) > 1 and value.dtype.is_floating


def _coloured(image: Array, weights: Array) -> Image:
    height, width, _ = image.shape
    large = cv2.resize(weights, (width, height), interpolation=cv2.INTER_LINEAR)
    colours = cv2.applyColorMap((255 * large).astype(np.uint8), cv2.COLORMAP_VIRIDIS)[..., ::-1]
    grey = image.mean(-1, keepdims=True)
    return np.asarray(_HEAT * colours + (1 - _HEAT) * grey, np.uint8)
