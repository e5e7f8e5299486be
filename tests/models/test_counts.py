"""Parameters and multiply-adds are those of papers and of a count by hand; what is not known is said."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
from keras import layers

from podline.contract.kind import kind_of
from podline.models.counts import describe, described
from podline.recipes import registry
from podline.recipes.settings import ModelSettings


# As its authors list them (tensorflow/models, research/slim/nets/mobilenet/README.md).
@pytest.mark.parametrize(
    ("width", "parameters", "multiply_adds"),
    [(1.0, 3.47e6, 300e6), pytest.param(1.4, 6.06e6, 582e6, marks=pytest.mark.slow)],
)
def test_mobilenetv2_costs_at_224_pixels_what_its_authors_say(
    width: float, parameters: float, multiply_adds: float
) -> None:
    description = describe(ModelSettings(kind="mobilenetv2", width=width), (224, 224, 3), 1000)
    # The table is rounded, and it has one class more and counts the norms a little differently: 2 % covers that.
    assert description.trainable_parameters == pytest.approx(parameters, rel=0.02)
    assert description.multiply_adds == pytest.approx(multiply_adds, rel=0.006)
    for total in ("parameters", "trainable_parameters", "bytes", "multiply_adds"):
        assert getattr(description, total) == sum(getattr(layer, total) for layer in description.layers)


@pytest.mark.usefixtures("few_layers_once")
def test_a_recipe_has_the_network_of_its_kind() -> None:
    mnist, poses = registry.get("mnist"), registry.get("coco_pose")
    assert kind_of(mnist).description(mnist, (28, 28, 1), 10, {}) == describe(mnist.model, (28, 28, 1), 10)
    found = kind_of(poses).description(registry.override(poses, {"task.side": 128}), (1, 1, 1), 3, {})
    assert (found.kind, found.image_shape, found.classes) == ("pose", (128, 128, 3), 0)
    assert found.layers[-1].name.endswith("_heatmap")


def test_the_linear_model_by_hand() -> None:
    description = describe(ModelSettings(kind="linear"), (28, 28, 1), 10)
    assert [layer.kind for layer in description.layers] == ["Rescaling", "Flatten", "Dense"]
    assert description.parameters == description.trainable_parameters == 784 * 10 + 10
    assert (description.bytes, description.multiply_adds) == (7850 * 4, 7840)
    # 12 examples of 10 logits lie in two tiles of 8 × 128.
    assert [layer.tile_waste(12) for layer in description.layers] == [None, None, 1 - 120 / (16 * 128)]


@pytest.mark.parametrize(
    ("make", "shape", "parameters", "multiply_adds"),
    [
        (lambda: layers.Conv2D(8, 3, groups=2), (6, 6, 4), 9 * 2 * 8 + 8, 16 * 9 * 2 * 8),
        (lambda: layers.Conv2DTranspose(8, 3, strides=2), (4, 4, 5), 9 * 5 * 8 + 8, 16 * 9 * 5 * 8),
        (lambda: layers.DepthwiseConv2D(3, depth_multiplier=2), (6, 6, 4), 9 * 8 + 8, 16 * 9 * 8),
        (lambda: layers.SeparableConv2D(7, 3), (6, 6, 4), 9 * 4 + 4 * 7 + 7, 16 * (9 * 4 + 4 * 7)),
        (lambda: layers.EinsumDense("abc,cde->abde", (4, 2, 3)), (4, 5), 5 * 6, 4 * 5 * 6),
        (lambda: layers.EinsumDense("...x,xy->...y", 3), (4, 5), 5 * 3, 4 * 5 * 3),
        (layers.LayerNormalization, (4, 5), 10, 0),
        (lambda: keras.Sequential([layers.Dense(5), layers.ReLU(), layers.Dense(2)]), (3,), 20 + 12, 15 + 10),
        (lambda: layers.LSTM(2), (4, 5), 4 * (5 * 2 + 4 + 2), None),
    ],
)
def test_what_keras_has_is_counted_and_what_is_unknown_is_said(
    make: Callable[[], layers.Layer], shape: tuple[int, ...], parameters: int, multiply_adds: int | None
) -> None:
    image = keras.Input((4, 4, 3))
    layer = make()
    before = layers.Dense(int(np.prod(shape)))(layers.Flatten()(image))
    model = keras.Model(image, layer(layers.Reshape(shape)(before)))
    description = described(model)
    row = description.layers[-1]
    assert (row.parameters, row.multiply_adds) == (parameters, multiply_adds)
    assert description.multiply_adds == 48 * int(np.prod(shape)) + (multiply_adds or 0)
    said = f"without those of {layer.name} ({type(layer).__name__}), which are unknown"
    assert description.uncounted == (said if multiply_adds is None else "")


def test_a_layer_that_is_called_twice_has_its_weights_once_and_works_twice() -> None:
    image = keras.Input((2, 2, 3))
    shared = layers.Dense(3)
    description = described(keras.Model(image, shared(shared(image)) + image))
    assert [row.kind for row in description.layers] == ["Dense", "Add"]
    assert (description.parameters, description.multiply_adds) == (12, 2 * 4 * 9)


def test_products_of_keras_ops_are_counted() -> None:
    image = keras.Input((4, 6, 2))
    left, right = image[:, :, :, 0], keras.ops.transpose(image[:, :, :, 1], (0, 2, 1))
    assert described(keras.Model(image, keras.ops.matmul(left, right))).multiply_adds == 4 * 6 * 4
    attended = keras.ops.dot_product_attention(image, image, image)
    assert described(keras.Model(image, attended)).multiply_adds == 2 * 4 * 4 * 6 * 2
