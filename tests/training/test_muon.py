from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from podline.recipes.settings import OptimizerSettings
from podline.training.muon import orthogonalised
from podline.training.optimizers import build_optimizer

RATE = 0.1
SETTINGS = OptimizerSettings(kind="muon", momentum=0.6, adam_rate=0.2)
CHANCE = np.random.default_rng(3)


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
    optimizer = build_optimizer(SETTINGS, RATE)
    optimizer.build([kernel])
    for _ in range(2):
        gradient = CHANCE.normal(size=(3, 3, 4, 8))
        optimizer.apply([tf.constant(gradient, tf.float32)])
        momentum = 0.6 * momentum + gradient
        expected *= np.sqrt(8) / np.linalg.norm(expected)
        rows = (gradient + 0.6 * momentum).reshape(36, 8).T
        step = np.asarray(orthogonalised(tf.constant(rows, tf.float32)))
        expected -= RATE * step.T.reshape(3, 3, 4, 8)
    np.testing.assert_allclose(kernel.numpy(), expected, rtol=0, atol=1e-5)  # float32


def test_all_else_takes_steps_of_adam_at_a_rate_of_its_own() -> None:
    values = CHANCE.normal(size=(6, 5)).astype(np.float32)
    ours, theirs = (keras.Variable(values, name="kernel") for _ in range(2))
    optimizer = build_optimizer(SETTINGS, RATE)
    adam = keras.optimizers.Adam(RATE * 0.2, beta_1=0.85, beta_2=0.95, epsilon=1e-8)
    for each, variable in ((optimizer, ours), (adam, theirs)):
        each.build([variable])
    for _ in range(3):
        gradient = tf.constant(CHANCE.normal(size=(6, 5)), tf.float32)
        optimizer.apply([gradient])
        adam.apply([gradient])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-5)  # float32


def test_a_kernel_keeps_its_norm_and_no_second_moment() -> None:
    kernel = keras.Variable(CHANCE.normal(size=(3, 3, 4, 8)).astype(np.float32), name="kernel")
    optimizer = build_optimizer(SETTINGS, 0.0)
    optimizer.build([kernel])
    optimizer.apply([tf.ones((3, 3, 4, 8))])
    np.testing.assert_allclose(np.linalg.norm(kernel.numpy()), np.sqrt(8), rtol=1e-5)
    assert [tuple(variable.shape) for variable in optimizer.variables].count((3, 3, 4, 8)) == 1


@pytest.mark.parametrize(
    "layer", [keras.layers.Conv2D(8, 3), keras.layers.DepthwiseConv2D(3, use_bias=False)], ids=["bias", "depthwise"]
)
def test_a_kernel_that_no_batch_norm_makes_scaleless_keeps_its_size(layer: keras.layers.Layer) -> None:
    layer.build((None, 8, 8, 4))
    before = layer.kernel.numpy()
    optimizer = build_optimizer(SETTINGS, 0.0)
    optimizer.build(layer.trainable_variables)
    optimizer.apply([tf.ones(variable.shape) for variable in layer.trainable_variables])
    np.testing.assert_array_equal(layer.kernel.numpy(), before)
