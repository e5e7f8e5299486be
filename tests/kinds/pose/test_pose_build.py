from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from podline.documents.skeleton import COCO
from podline.kinds.pose.losses import stage_losses
from podline.kinds.pose.network import build_pose_model, stage_names
from podline.kinds.pose.settings import PoseModelSettings, PoseTargetSettings
from podline.kinds.pose.targets import pose_targets

pytestmark = pytest.mark.usefixtures("few_layers")

SIDE, STRIDE = 64, 8
SMALL = PoseModelSettings(width=0.2, features=16, stage_width=16, stage_depth=1, dropout=0.2)
MEAN, STD = (120.0, 115.0, 105.0), (60.0, 60.0, 60.0)


def build(settings=SMALL, side=SIDE):
    return build_pose_model(settings, side, STRIDE, COCO, MEAN, STD)


def examples(count=2):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, SIDE, SIDE, 3)).astype(np.uint8)
    keypoints = np.zeros((count, 1, 18, 3), np.float32)
    keypoints[:, 0, COCO.index["neck"]] = [(20, 20, 2), (40, 24, 2)][:count]
    keypoints[:, 0, COCO.index["nose"]] = [(20, 50, 2), (10, 24, 2)][:count]
    return images, pose_targets(keypoints, np.zeros((count, 8, 8), np.uint8), SIDE, PoseTargetSettings(), COCO)


@pytest.mark.parametrize("settings", [SMALL, PoseModelSettings(width=0.35, heatmap_stages=2, batch_norm=False)])
def test_it_answers_by_the_stages_names_in_their_order(settings):
    model = build(settings, 72)
    assert (model.input.dtype, model.input.shape) == ("uint8", (None, 72, 72, 3))
    assert list(model.output) == list(stage_names(settings))
    assert {output.dtype for output in model.output.values()} == {"float32"}


def test_answers_start_near_zero():
    answers = build()(examples()[0], training=True)
    assert all(0 < np.abs(answer).max() < 0.5 for answer in answers.values())


def test_dropout_acts_in_training_only():
    model, images = build(), examples()[0]
    first, second = (model(images, training=True)["stage1_paf"] for _ in range(2))
    assert (np.asarray(first) != np.asarray(second)).any()
    first, second = (model(images, training=False)["stage1_paf"] for _ in range(2))
    assert np.asarray(first).tobytes() == np.asarray(second).tobytes()


def test_every_variable_learns():
    """Kernels, batch norms with their moving averages: one step on the sum of all stages' losses moves all of them."""
    model = build()
    images, targets = examples()
    before = {variable.path: variable.numpy() for variable in model.variables}
    with tf.GradientTape() as tape:
        losses = stage_losses(model(images, training=True), targets)
        loss = tf.add_n([tf.reduce_mean(value) for value in losses.values()])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
    still = {variable.path for variable in model.variables if np.array_equal(before[variable.path], variable.numpy())}
    assert still == set()


def test_the_first_stage_has_a_loss_of_its_own_and_the_last_reaches_back():
    model = build()
    images, targets = examples()
    first = model.get_layer("stage1_paf").trainable_variables
    stem = model.get_layer("stem_conv").trainable_variables
    last = model.get_layer("stage3_heatmap").trainable_variables
    for stage, reached, untouched in (("stage1_paf", stem, last), ("stage3_heatmap", first, [])):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(stage_losses(model(images, training=True), targets)[stage])
        gradients = tape.gradient(loss, [variable.value for variable in [*reached, *untouched]])
        assert all(np.asarray(gradient).any() for gradient in gradients[: len(reached)])
        assert gradients[len(reached) :] == [None] * len(untouched)


def test_l2_is_on_the_named_layers_only():
    settings = SMALL.model_copy(update={"l2": 0.5, "l2_layers": ("stage3_heatmap",)})
    model = build(settings)
    kernels = [
        model.get_layer(name).kernel
        for name in ("stage3_heatmap", "stage3_heatmap_entry_conv", "stage3_heatmap_block1_conv")
    ]
    expected = sum(0.5 * float(tf.reduce_sum(tf.square(kernel))) for kernel in kernels)
    assert float(tf.add_n(model.losses)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_it_learns_two_images_by_heart():
    model = build(SMALL.model_copy(update={"dropout": 0.0}))
    images, targets = examples()
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            losses = stage_losses(model(images, training=True), targets)
            loss = tf.add_n([tf.reduce_mean(value) for value in losses.values()])
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)
        return losses

    first = step()
    for _ in range(60):
        last = step()
    for name in stage_names(SMALL):
        assert float(tf.reduce_mean(last[name])) < 0.3 * float(tf.reduce_mean(first[name])), name
