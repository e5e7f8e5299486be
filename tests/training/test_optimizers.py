"""Optimizers take the steps of Keras's, or of their papers where they are Podline's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import optimizers

from podline.base.errors import SettingsError
from podline.recipes.keras_optimizers import KERAS_OPTIMIZERS, USUAL_RATES
from podline.recipes.settings import OptimizerSettings
from podline.training.muon import orthogonalised
from podline.training.optimizers import build_optimizer

RATE = 0.1


def test_adafactor_by_the_paper() -> None:
    gradient = np.random.default_rng(3).normal(size=(3, 3, 2, 4))
    kernel = keras.Variable(np.linspace(1, 2, 72).reshape(3, 3, 2, 4).astype(np.float32), name="kernel")
    optimizer = build_optimizer(OptimizerSettings(kind="adafactor"), [kernel], RATE)
    expected = kernel.numpy().astype(float)
    rows, columns = np.zeros((3, 3, 2)), np.zeros((3, 3, 4))
    for step in (1, 2, 3):
        optimizer.apply([tf.constant(gradient * step, tf.float32)])
        squares, beta = (gradient * step) ** 2 + 1e-30, 1 - step**-0.8
        rows = beta * rows + (1 - beta) * squares.mean(-1)
        columns = beta * columns + (1 - beta) * squares.mean(-2)
        second = (rows / rows.mean(-1, keepdims=True))[..., None] * columns[..., None, :]
        update = gradient * step / np.sqrt(second)
        update /= max(1.0, np.sqrt((update**2).mean()))
        expected -= RATE * max(1e-3, np.sqrt((expected**2).mean())) * update
    np.testing.assert_allclose(kernel.numpy(), expected, rtol=1e-5)
    shapes = {tuple(variable.shape) for variable in optimizer.variables}
    assert {(3, 3, 2), (3, 3, 4)} <= shapes
    assert (3, 3, 2, 4) not in shapes, "no whole second moment"


MUON = OptimizerSettings(kind="muon", momentum=0.6, adam_rate=0.2)
CHANCE = np.random.default_rng(3)
CLOSE = 1e-5  # float32


@pytest.mark.parametrize("shape", [(16, 27), (64, 576), (40, 12)])
def test_singular_values_become_about_one_and_the_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = CHANCE.normal(size=shape)
    found = np.asarray(orthogonalised(tf.constant(matrix, tf.float32)))
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ found @ right.T
    values = np.diag(turned)
    assert values.min() > 0.6
    assert values.max() < 1.3
    np.testing.assert_allclose(turned, np.diag(values), rtol=0, atol=1e-3)  # three iterations in float32


def test_two_steps_of_a_convolution_by_hand() -> None:
    kernel = keras.Variable(CHANCE.normal(size=(3, 3, 4, 8)).astype(np.float32), name="kernel")
    expected, momentum = kernel.numpy().astype(float), np.zeros((3, 3, 4, 8))
    optimizer = build_optimizer(MUON, [kernel], RATE)
    assert [tuple(variable.shape) for variable in optimizer.variables].count((3, 3, 4, 8)) == 1, "no second moment"
    for _ in range(2):
        gradient = CHANCE.normal(size=(3, 3, 4, 8))
        optimizer.apply([tf.constant(gradient, tf.float32)])
        momentum = 0.6 * momentum + gradient
        expected *= np.sqrt(8) / np.linalg.norm(expected)
        rows = (gradient + 0.6 * momentum).reshape(36, 8).T
        step = np.asarray(orthogonalised(tf.constant(rows, tf.float32)))
        expected -= RATE * step.T.reshape(3, 3, 4, 8)
    np.testing.assert_allclose(kernel.numpy(), expected, rtol=0, atol=CLOSE)


def test_a_transposed_convolution_turns_as_its_transposed_kernel_does() -> None:
    layer = keras.layers.Conv2DTranspose(6, 3, use_bias=False)
    layer.build((None, 8, 8, 4))
    twin = keras.Variable(tf.linalg.matrix_transpose(layer.kernel.value), name="kernel")  # filters last
    gradient = tf.constant(CHANCE.normal(size=(3, 3, 6, 4)), tf.float32)
    build_optimizer(MUON, [layer.kernel], RATE, [layer]).apply([gradient])
    build_optimizer(MUON, [twin], RATE).apply([tf.linalg.matrix_transpose(gradient)])
    expected = tf.linalg.matrix_transpose(twin.value)
    np.testing.assert_allclose(layer.kernel.numpy(), expected, rtol=0, atol=1e-6)  # sums in another order


@keras.saving.register_keras_serializable(package="decaying")
class Prototypes(keras.layers.Layer):
    """Weights whose names say nothing: two axes decay, one does not."""

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=(5, input_shape[-1]))
        self.level = self.add_weight(shape=(5,))


@pytest.mark.parametrize(
    ("make", "shape", "decaying"),
    [
        (Prototypes, (None, 3), 1),
        (lambda: keras.layers.MultiHeadAttention(2, 3), [(None, 4, 6)] * 2, 4),
        (lambda: keras.layers.GRU(3), (None, 4, 6), 2),
        (lambda: keras.layers.RMSNormalization(axis=[1, 2]), (None, 4, 6), 0),
        (keras.layers.PReLU, (None, 4, 6), 0),
        (lambda: keras.layers.EinsumDense("abc,cd->abd", (4, 8), bias_axes="bd"), (None, 4, 6), 1),
    ],
    ids=["unnamed", "attention", "GRU", "RMSNormalization", "PReLU", "EinsumDense"],
)
def test_weights_of_two_axes_decay_whatever_their_name_unless_it_is_a_norms_or_bias(
    make: Any, shape: Any, decaying: int
) -> None:
    layer = make()
    layer.build(*shape) if isinstance(shape, list) else layer.build(shape)
    variables = layer.trainable_variables
    for variable in variables:
        variable.assign(tf.ones(variable.shape))
    optimizer = build_optimizer(OptimizerSettings(weight_decay=0.5), variables, RATE)
    optimizer.apply([tf.zeros(variable.shape) for variable in variables])
    decayed = [variable for variable in variables if np.any(variable.numpy() != 1)]
    assert len(decayed) == decaying
    assert all("bias" not in variable.path for variable in decayed)
    np.testing.assert_allclose(decayed[0].numpy() if decayed else 0.95, 1 - RATE * 0.5, rtol=1e-6)


def test_all_else_takes_steps_of_adam_at_a_rate_of_its_own() -> None:
    values = CHANCE.normal(size=(6, 5)).astype(np.float32)
    ours, theirs = (keras.Variable(values, name="kernel") for _ in range(2))
    optimizer = build_optimizer(MUON, [ours], RATE)
    adam = keras.optimizers.Adam(RATE * 0.2, beta_1=0.85, beta_2=0.95, epsilon=1e-8)
    adam.build([theirs])
    for _ in range(3):
        gradient = tf.constant(CHANCE.normal(size=(6, 5)), tf.float32)
        optimizer.apply([gradient])
        adam.apply([gradient])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=CLOSE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.Conv2DTranspose(8, 3),
        lambda: keras.layers.DepthwiseConv2D(3, depth_multiplier=2, use_bias=False),
    ],
    ids=["bias", "depthwise"],
)
def test_a_kernel_that_no_batch_norm_makes_scaleless_keeps_its_size(make: Any) -> None:
    layer = make()
    layer.build((None, 8, 8, 4))
    before = layer.kernel.numpy()
    optimizer = build_optimizer(MUON, layer.trainable_variables, 0.0, [layer])
    optimizer.apply([tf.ones(variable.shape) for variable in layer.trainable_variables])
    np.testing.assert_array_equal(layer.kernel.numpy(), before)


IMAGES, TARGETS = (CHANCE.normal(size=(20, 8, count)).astype(np.float32) for count in (4, 3))


_WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer", "Optimizer"}


def network() -> keras.Model:
    """Two dense layers and a norm, with the same weights each time."""
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(6, activation="tanh", name="first")(inputs)
    outputs = keras.layers.Dense(3, name="last")(keras.layers.LayerNormalization(name="norm")(hidden))
    model = keras.Model(inputs, outputs)
    chance = np.random.default_rng(0)
    model.set_weights([chance.normal(0.3, 0.5, values.shape) for values in model.get_weights()])
    return model


def trained(make: Callable[[keras.Model], Any]) -> list[Any]:
    """The weights after 20 steps of 8 examples."""
    model = network()
    optimizer = make(model)

    @tf.function
    def step(images: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(images) - targets) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    for images, targets in zip(IMAGES, TARGETS, strict=True):
        step(tf.constant(images), tf.constant(targets))
    return model.get_weights()


def require_equal(ours: list[Any], theirs: list[Any]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=CLOSE, atol=CLOSE)


def test_every_optimizer_of_keras_has_a_kind_and_its_own_rate() -> None:
    classes = {name for name, each in vars(optimizers).items() if isinstance(each, type)} - _WRAPPERS
    assert set(KERAS_OPTIMIZERS.values()) == {
        name for name in classes if issubclass(getattr(optimizers, name), optimizers.Optimizer)
    }
    for kind, name in KERAS_OPTIMIZERS.items():
        assert float(getattr(optimizers, name)().learning_rate) == pytest.approx(USUAL_RATES[kind]), kind


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({"momentum": 0.8, "nesterov": True}, {"momentum": 0.8, "nesterov": True}),
    "adam": ({"options": {"amsgrad": True, "beta_2": 0.9}}, {"amsgrad": True, "beta_2": 0.9}),
    "rmsprop": ({"momentum": 0.5, "options": {"centered": True}}, {"momentum": 0.5, "centered": True}),
    "keras_adafactor": ({"options": {"relative_step": False}}, {"relative_step": False}),
}


_OWN = [(kind, ({}, {})) for kind in KERAS_OPTIMIZERS]


@pytest.mark.parametrize(("kind", "settings"), [*_OWN, *SETTINGS.items()])
@pytest.mark.parametrize("decay", [None, 0.1])
def test_each_optimizer_takes_the_steps_of_keras(kind: str, settings: Any, decay: float | None) -> None:
    given, arguments = settings
    rate, made = USUAL_RATES[kind] * 10, getattr(optimizers, KERAS_OPTIMIZERS[kind])
    if decay:
        arguments = arguments | {"weight_decay": decay, "global_clipnorm": 0.3}
        given = given | {"weight_decay": decay, "clip_norm": 0.3}
        if kind == "keras_muon":
            arguments["adam_weight_decay"] = decay

    def theirs(model: keras.Model) -> Any:
        optimizer = made(rate, **arguments)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        optimizer.build(model.trainable_variables)
        return optimizer

    mine = OptimizerSettings(kind=kind, **given)
    require_equal(trained(lambda model: build_optimizer(mine, model.trainable_variables, rate)), trained(theirs))


def test_each_layer_has_the_rate_of_its_longest_prefix() -> None:
    variables = network().trainable_variables
    before = [variable.numpy() for variable in variables]
    with pytest.raises(SettingsError, match=r"'f\*' is not the longest prefix of any weight that trains; the weights"):
        build_optimizer(OptimizerSettings(kind="adam", rates={"": 0.5, "first": 0.1, "f*": 3.0}), variables, 0.01)
    optimizer = build_optimizer(OptimizerSettings(kind="adam", rates={"": 0.5, "first": 0.1}), variables, 0.01)
    optimizer.apply([tf.ones(variable.shape) for variable in variables])  # Adam's first step has the size of the rate
    for variable, values in zip(variables, before, strict=True):
        rate = 0.001 if "first" in variable.path else 0.005
        np.testing.assert_allclose(values - variable.numpy(), np.full(variable.shape, rate), rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta_3": 1}, "got options.beta_3, expected one of amsgrad, beta_1, beta_2, clipnorm"),
        ({"clipvalue": 0.5}, "clipvalue=0.5: leave it out"),
    ],
)
def test_an_option_that_is_none_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        build_optimizer(OptimizerSettings(kind="adam", options=options), network().trainable_variables, 0.1)
