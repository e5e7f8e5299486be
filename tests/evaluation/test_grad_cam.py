from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from podline.evaluation.grad_cam import looked_at, place_weights


def bright_or_dark() -> keras.Model:
    """Two maps, of what is bright and of what is dark; the answer is the larger mean."""
    image: Any = keras.Input((8, 8, 1), dtype="uint8")
    signs: Any = keras.initializers.Constant([[[[1.0, -1.0]]]])
    maps = layers.Conv2D(2, 1, use_bias=False, kernel_initializer=signs)(layers.Rescaling(1 / 128, -1)(image))
    means = layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2)(layers.ReLU()(maps)))
    return keras.Model(image, means)


def test_the_places_that_speak_for_the_answer_are_the_brightest() -> None:
    images = np.full((2, 8, 8, 1), 128, np.uint8)
    images[0, :2, 6:] = 255  # bright, at the top on the right
    images[1, 6:, :4] = 0  # dark, at the bottom on the left
    weights = place_weights(bright_or_dark(), images)
    assert weights is not None
    expected = np.zeros((2, 4, 4))
    expected[0, 0, 3] = expected[1, 3, :2] = 1
    np.testing.assert_allclose(weights, expected)
    bright, _ = (picture.sum(-1) for picture in looked_at(bright_or_dark(), [*images]))
    assert bright.shape == (8, 8)
    assert np.unravel_index(bright.argmax(), bright.shape) == (0, 7)


def test_a_model_without_maps_looks_nowhere() -> None:
    image: Any = keras.Input((8, 8, 1), dtype="uint8")
    model = keras.Model(image, layers.Dense(3)(layers.Flatten()(layers.Rescaling(1.0)(image))))
    assert looked_at(model, [np.zeros((8, 8, 1), np.uint8)]) == []
