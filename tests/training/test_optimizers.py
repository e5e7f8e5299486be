from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from podline.recipes.settings import OptimizerSettings
from podline.training.optimizers import build_optimizer

KINDS = ["sgd", "adam", "adamw", "rmsprop", "adafactor"]
RATE = 0.1


class Weights:
    """A kernel, a bias and the two parameters of a norm, with gradients of 1."""

    def __init__(self) -> None:
        layers = [keras.layers.Conv2D(4, 3, name="conv"), keras.layers.BatchNormalization(name="norm")]
        for layer, shape in zip(layers, [(1, 8, 8, 2), (1, 8, 8, 4)], strict=True):
            layer.build(shape)
        self.variables = [variable for layer in layers for variable in layer.trainable_variables]
        for variable in self.variables:
            variable.assign(np.linspace(1, 2, variable.value.shape.num_elements()).reshape(variable.shape))

    def values(self) -> dict[str, np.ndarray]:
        return {variable.name: variable.numpy() for variable in self.variables}


def stepped(settings: OptimizerSettings, gradient: float = 1.0, steps: int = 1) -> dict[str, np.ndarray]:
    """The change of each variable."""
    weights = Weights()
    before = weights.values()
    optimizer = build_optimizer(settings, RATE)
    optimizer.build(weights.variables)
    for _ in range(steps):
        optimizer.apply([tf.fill(variable.shape, gradient) for variable in weights.variables])
    return {name: after - before[name] for name, after in weights.values().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_only_kernels_decay_and_by_rate_times_decay(kind: str) -> None:
    plain = stepped(OptimizerSettings.model_validate({"kind": kind}), gradient=0.0)
    decayed = stepped(OptimizerSettings.model_validate({"kind": kind, "weight_decay": 0.5}), gradient=0.0)
    assert {"kernel", "bias", "gamma", "beta"} == decayed.keys()
    for name in ("bias", "gamma", "beta"):
        np.testing.assert_array_equal(decayed[name], 0)
    np.testing.assert_array_equal(plain["kernel"], 0)
    kernel = Weights().values()["kernel"]
    np.testing.assert_allclose(decayed["kernel"], -kernel * RATE * 0.5, rtol=1e-5)  # float32


def test_sgd_with_nesterov_momentum_by_hand() -> None:
    change = stepped(OptimizerSettings(momentum=0.9), steps=2)["bias"]
    velocities = [-RATE, 0.9 * -RATE - RATE]
    np.testing.assert_allclose(change, sum(0.9 * velocity - RATE for velocity in velocities), rtol=1e-5)
    heavy_ball = stepped(OptimizerSettings(momentum=0.9, nesterov=False), steps=2)["bias"]
    np.testing.assert_allclose(heavy_ball, sum(velocities), rtol=1e-5)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adams_first_step_is_the_rate(kind: str) -> None:
    change = stepped(OptimizerSettings.model_validate({"kind": kind}), gradient=7.0)
    np.testing.assert_allclose(change["kernel"], -RATE, rtol=1e-5)


def test_momentum_is_the_first_beta_of_adam() -> None:
    assert build_optimizer(OptimizerSettings(kind="adam", momentum=0.5)).beta_1 == 0.5
    assert build_optimizer(OptimizerSettings(kind="rmsprop", momentum=0.5)).momentum == 0.5


def test_the_norm_of_all_gradients_is_clipped_together() -> None:
    settings = OptimizerSettings(momentum=0, clip_norm=0.5)
    changes = stepped(settings, gradient=3.0)
    count = sum(change.size for change in changes.values())
    np.testing.assert_allclose(changes["bias"], -RATE * 0.5 / np.sqrt(count), rtol=1e-5)
    loose = stepped(settings.model_copy(update={"clip_norm": 1e3}), gradient=3.0)
    np.testing.assert_allclose(loose["bias"], -RATE * 3, rtol=1e-5)


@pytest.mark.slow
def test_adafactor_takes_the_rate_that_it_is_given() -> None:
    change = stepped(OptimizerSettings(kind="adafactor"), gradient=1e-3, steps=400)["bias"]
    # A constant gradient makes every update 1, so a step is the rate times the weights' root mean square. Keras's own
    # optimizer would take 1/sqrt(step) of it from step 100 on.
    start = Weights().values()["bias"].astype(float)
    bias = start.copy()
    for _ in range(400):
        bias -= RATE * max(1e-3, np.sqrt((bias**2).mean()))
    np.testing.assert_allclose(change, bias - start, rtol=1e-4)  # 400 float32 steps


def test_adafactor_by_the_paper() -> None:
    gradient = np.random.default_rng(3).normal(size=(3, 3, 2, 4))
    weights = Weights()
    optimizer = build_optimizer(OptimizerSettings(kind="adafactor"), RATE)
    kernel = weights.variables[0]
    optimizer.build([kernel])
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


def test_adafactor_keeps_no_whole_second_moment_of_a_kernel() -> None:
    optimizer = build_optimizer(OptimizerSettings(kind="adafactor"))
    optimizer.build(Weights().variables)
    shapes = {tuple(variable.shape) for variable in optimizer.variables}
    assert (3, 3, 2, 4) not in shapes
    assert {(3, 3, 2), (3, 3, 4), (4,)} <= shapes
    paths = [variable.path for variable in optimizer.variables]
    assert len(set(paths)) == len(paths)
