from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from podline.training.probe import Probe

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def look(model: keras.Model, images: np.ndarray = IMAGES):
    return Probe(tf.distribute.get_strategy(), model, images, "channels_last").figures()


def small_model(bias: float = 0.0) -> keras.Model:
    """A convolution whose first two of four channels are cut off where the bias is low enough, then a dense layer."""
    image = keras.Input((8, 8, 3), dtype="uint8")
    pixels = keras.layers.Rescaling(1 / 255, name="pixels")(image)
    features = keras.layers.Conv2D(4, 3, name="conv", kernel_initializer=keras.initializers.GlorotUniform(1))(pixels)
    cut = keras.layers.ReLU(name="relu")(features)
    pooled = keras.layers.GlobalAveragePooling2D(name="pool")(cut)
    model = keras.Model(image, keras.layers.Dense(3, name="logits")(pooled))
    model.get_layer("conv").bias.assign([bias, bias, 5.0, 5.0])
    return model


def test_channels_that_are_zero_and_the_largest_magnitude_are_those_of_all_images_and_of_the_model_as_it_is_now():
    model = small_model(bias=5.0)
    probe = Probe(tf.distribute.get_strategy(), model, IMAGES, "channels_last")
    assert sum(layer.dead for layer in probe.figures().layers) == 0
    conv = model.get_layer("conv")
    conv.bias.assign([-100.0, -100.0, 5.0, 5.0])
    figures = probe.figures()
    assert figures.images == 6
    assert [layer.name for layer in figures.layers] == ["pixels", "conv", "relu", "pool", "logits"]
    assert [layer.dead for layer in figures.layers] == [0, 0, 2, 0, 0], "where they are cut off"
    assert [layer.channels for layer in figures.layers] == [3, 4, 4, 4, 3]
    assert figures.layers[1].largest > 90
    conv.bias.assign([np.inf] * 4)
    assert probe.figures().layers[1].largest == np.finfo(np.float32).max


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6])
def test_the_spread_of_an_answer_has_no_unit_and_is_nothing_where_the_image_is_not_looked_at(size):
    model = small_model(bias=5.0)
    dense = model.get_layer("logits")
    kernel = np.random.default_rng(1).normal(size=dense.kernel.shape)
    dense.kernel.assign(size * kernel)
    logits = model(IMAGES).numpy()
    left = logits - logits.mean(0)
    expected = np.sqrt((left**2).mean() / (logits**2).mean()) if size else 0.0
    [(name, spread)] = look(model).spreads.items()
    assert name == "logits"
    assert spread == pytest.approx(expected, rel=1e-3)
    dense.kernel.assign(0 * kernel)
    dense.bias.assign([1.0, 2.0, 3.0])
    assert look(model).spreads == {"logits": 0.0}
