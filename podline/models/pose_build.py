"""The pose network as a Keras model: uint8 images in, each stage's answer out, the normalisation inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from podline.documents.manifest import Manifest
from podline.models.build import LayerMaker
from podline.models.pose import pose_network, stage_names
from podline.recipes.pose_settings import PoseModelSettings
from podline.recipes.settings import ModelSettings, Recipe


def pose_model(recipe: Recipe, manifest: Manifest) -> keras.Model:
    """A pose recipe's model for a data set, with fresh weights; pixels are normalised by the training split.

    Raises:
        SettingsError: see :func:`build_pose_model`.
    """
    poses, split = recipe.poses, manifest.split("train")
    return build_pose_model(poses.model, poses.side, poses.targets.stride, split.mean, split.std, recipe.seed)


def build_pose_model(
    settings: PoseModelSettings, side: int, stride: int, mean: Sequence[float], std: Sequence[float], seed: int = 0
) -> keras.Model:
    """The model, with fresh weights.

    Args:
        settings: how wide, how many stages.
        side: of the network's input, in pixels; a multiple of the stride.
        stride: pixels of the input to a cell of the answers.
        mean: per channel, of pixels in 0…255, from the training split.
        std: standard deviation per channel, likewise.
        seed: of weights and dropout, as in :func:`podline.models.build.build_model`.

    Returns:
        A model from uint8 (n, side, side, 3) to a dictionary of float32 answers (n, side / stride, side / stride, 40
        for PAFs or 18 for heatmaps), by the names of :func:`podline.models.pose.stage_names`, in their order. Its
        ``losses`` hold the L2 terms.

    Raises:
        SettingsError: see :func:`podline.models.pose.pose_network`.
    """
    network = pose_network(settings, side, stride)
    regularised = ModelSettings(kind="mobilenetv2", l2=settings.l2, l2_layers=settings.l2_layers)
    maker = LayerMaker(regularised, mean, std, network.layers_named(settings.l2_layers), seed)
    image = keras.Input((side, side, 3), dtype="uint8", name="image")
    outputs: dict[str, Any] = {}
    for layer, inputs in network.wired():
        outputs[layer.name] = maker.apply(layer, [outputs[name] for name in inputs] or [image])
    return keras.Model(image, {name: outputs[name] for name in stage_names(settings)}, name="pose")
