"""The pose network has the stages, maps, layers and options that its settings ask for, and all of it learns."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.documents.skeleton import COCO
from podline.kinds.pose.network import build_pose_model, pose_network, stage_names
from podline.kinds.pose.settings import PoseModelSettings, PoseTargetSettings
from podline.kinds.pose.stage_measures import stage_losses
from podline.kinds.pose.targets import pose_targets

pytestmark = pytest.mark.usefixtures("few_layers")

SIDE, STRIDE = 64, 8
LITE = PoseModelSettings(trunk="efficientnet-lite0", features=16, stage_width=16, stage_depth=1)
SMALL = PoseModelSettings(width=0.2, features=16, stage_width=16, stage_depth=1, dropout=0.2)
MEAN, STD = (120.0, 115.0, 105.0), (60.0, 60.0, 60.0)


def build(settings=SMALL):
    return build_pose_model(settings, SIDE, STRIDE, COCO, MEAN, STD)


def examples(count=2):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, SIDE, SIDE, 3)).astype(np.uint8)
    keypoints = np.zeros((count, 1, 18, 3), np.float32)
    keypoints[:, 0, COCO.index["neck"]] = [(20, 20, 2), (40, 24, 2)][:count]
    keypoints[:, 0, COCO.index["nose"]] = [(20, 50, 2), (10, 24, 2)][:count]
    return images, pose_targets(keypoints, np.zeros((count, 8, 8), np.uint8), SIDE, PoseTargetSettings(), COCO)


def test_answers_have_the_stages_names_in_order_and_dropout_acts_in_training_only():
    model, images = build(), examples()[0]
    assert list(model.output) == list(stage_names(SMALL)) == ["stage1_paf", "stage2_paf", "stage3_heatmap"]
    assert [tuple(output.shape[1:]) for output in model.output.values()] == [(8, 8, 40), (8, 8, 40), (8, 8, 18)]
    assert {output.dtype for output in model.output.values()} == {"float32"}
    assert all(0 < np.abs(answer).max() < 0.5 for answer in model(images, training=True).values())
    limited = build(SMALL.model_copy(update={"l2": 0.5, "l2_layers": ("stage3_heatmap",)}))
    assert (len(limited.losses), len(model.losses)) == (3, 0), "kernels of the named layers"
    first, second = (model(images, training=True)["stage1_paf"] for _ in range(2))
    assert (np.asarray(first) != np.asarray(second)).any()
    first, second = (model(images, training=False)["stage1_paf"] for _ in range(2))
    assert np.asarray(first).tobytes() == np.asarray(second).tobytes()


@pytest.mark.parametrize("settings", [SMALL, LITE], ids=lambda settings: settings.trunk)
def test_every_variable_learns(settings: PoseModelSettings):
    """Kernels, batch norms with their moving averages: one step on the sum of all stages' losses moves all of them."""
    model = build(settings)
    images, targets = examples()
    before = {variable.path: variable.numpy() for variable in model.variables}
    with tf.GradientTape() as tape:
        losses = stage_losses(model(images, training=True), targets)
        loss = tf.add_n([tf.reduce_mean(value) for value in losses.values()])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
    still = {variable.path for variable in model.variables if np.array_equal(before[variable.path], variable.numpy())}
    assert still == set()


def sources(settings, stride=8):
    """The layers that each layer reads."""
    network = pose_network(settings, 64, stride, COCO)
    names = {id(layer.output): layer.name for layer in network.layers}
    return {layer.name: tuple(names[id(each)] for each in keras.tree.flatten(layer.input)) for layer in network.layers}


def test_a_pretrained_trunk_has_its_own_pixels_and_ends_at_a_sixteenth_of_the_image():
    normalised = build(LITE).get_layer("normalise").get_config()
    assert (set(normalised["scale"]), set(normalised["offset"])) == ({1 / 128}, {-127 / 128})
    wired = sources(LITE, stride=4)
    necks = {name: wired[name] for name in wired if re.match(r"neck\d_conv", name)}
    assert necks == {
        "neck1_conv": ("block3a_expand_relu",),
        "neck2_conv": ("block4a_expand_relu",),
        "neck3_conv": ("block5c_add",),
    }
    for stride in (12, 32):
        with pytest.raises(SettingsError, match=f"no feature map of stride {stride} for an input of 384"):
            pose_network(LITE, 384, stride, COCO)
    with pytest.raises(ValueError, match=r"trunk=efficientnet-lite0 has .* give width=1"):
        LITE.changed(width=0.5)


def test_a_heatmap_stage_reads_the_last_pafs_and_the_heatmaps_before_it():
    wired = sources(PoseModelSettings(heatmap_stages=2))
    assert "stage1_paf_concatenate" not in wired
    assert wired["stage2_paf_concatenate"] == ("features_relu", "stage1_paf")
    assert wired["stage3_heatmap_concatenate"] == ("features_relu", "stage2_paf")
    assert wired["stage4_heatmap_concatenate"] == ("features_relu", "stage2_paf", "stage3_heatmap")


def test_dropout_and_batch_norm_are_optional():
    def layers(**settings):
        network = pose_network(PoseModelSettings(**settings), SIDE, STRIDE, COCO)
        return [layer for layer in network.layers if layer.name.startswith("stage")]

    plain, full = layers(batch_norm=False), layers(dropout=0.1)
    assert not any(isinstance(each, keras.layers.Dropout | keras.layers.BatchNormalization) for each in plain)
    assert all(layer.use_bias for layer in plain if layer.name.endswith("conv"))
    assert sum(isinstance(layer, keras.layers.Dropout) for layer in full) == 3
    assert not any(layer.use_bias for layer in full if layer.name.endswith("conv"))
