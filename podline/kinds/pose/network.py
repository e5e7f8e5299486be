"""Builds the pose network: from an image to part affinity fields and heatmaps, stage by stage.

Trunk and neck: the last feature map of each resolution, from the output's resolution down to 1/32 of the image for
MobileNetV2, and to 1/16 for EfficientNet-Lite0. Each map is projected to the same number of channels, enlarged and
added, after Lin et al.: "Feature Pyramid Networks for Object Detection", CVPR 2017. So cells have a large receptive
field without large kernels at full resolution.

Stages: after Cao et al.: "OpenPose: Realtime Multi-Person 2D Pose Estimation using Part Affinity Fields", TPAMI 2019.
The first stages compute and refine the fields, later ones the heatmaps from the fields. A stage is a few residual
blocks.
"""

# pyright: standard
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from podline.base.errors import SettingsError
from podline.documents.skeleton import Skeleton
from podline.kinds.pose.settings import PoseModelSettings
from podline.models import efficientnet_lite
from podline.models.blocks import Blocks
from podline.models.build import trainable_model
from podline.models.mobilenetv2 import RELU_LIMIT, backbone
from podline.models.normalisation import Pixels, pixels_of
from podline.recipes.settings import ModelSettings, Precision

_LITE_STAGES = 5  # of EfficientNet-Lite0, down to 1/16 of the image


def stage_names(settings: PoseModelSettings) -> tuple[str, ...]:
    """Return the names of the stages, which are also their output layers' names, in the order of computation.

    The names are ``stage1_paf``, ``stage2_paf``, ``stage3_heatmap`` …; up to nine stages, sorting keeps this order.
    """
    kinds = ["paf"] * settings.paf_stages + ["heatmap"] * settings.heatmap_stages
    return tuple(f"stage{number}_{kind}" for number, kind in enumerate(kinds, start=1))


def build_pose_model(
    settings: PoseModelSettings,
    side: int,
    stride: int,
    skeleton: Skeleton,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int = 0,
    precision: Precision = "float32",
) -> keras.Model:
    """Build the model with initial weights, including the normalisation of images.

    Returns:
        A model from uint8 (n, side, side, 3) to a dictionary of outputs by the names of :func:`stage_names`. An output
        is float32 (n, side / stride, side / stride, channels), with two channels per limb or one per joint. The model's
        ``losses`` contain the L2 terms.

    Raises:
        SettingsError: the trunk has no map of this stride, or a prefix in ``l2_layers`` matches no layer.
    """
    network = pose_network(settings, side, stride, skeleton)
    pixels = pixels_of(ModelSettings(kind=settings.trunk), Pixels(mean, std), len(mean))
    return trainable_model(network, "pose", pixels, seed, settings.l2, settings.l2_layers, precision)


def pose_network(settings: PoseModelSettings, side: int, stride: int, skeleton: Skeleton) -> keras.Model:
    """Build the network in plain Keras, from normalised images (n, side, side, 3); see :func:`build_pose_model`.

    Raises:
        SettingsError: the trunk has no map of this stride.
    """
    make = Blocks(limit=RELU_LIMIT)
    image, maps = make.begin((side, side, 3))
    if settings.trunk == "mobilenetv2":
        last_maps = backbone(make, maps, settings.width, side)
    else:
        last_maps = efficientnet_lite.trunk(make, maps, _LITE_STAGES)
    # The last feature map of each resolution up to the output's, finest first.
    last = {layer.output.shape[1]: layer.output for layer in keras.Model(image, last_maps).layers}
    taps = [last[height] for height in sorted(last, reverse=True) if height <= side // stride]
    if not taps or taps[0].shape[1] != side // stride:
        raise SettingsError(
            f"{settings.trunk} has no feature map of stride {stride} for an input of {side} pixels; set "
            "task.targets.stride=8"
        )
    return keras.Model(image, _stages(settings, _neck(settings, taps), skeleton))


def _neck(settings: PoseModelSettings, taps: list[keras.KerasTensor]) -> keras.KerasTensor:
    """Return the features for all stages: the sum of the given maps, each projected, normalised and enlarged."""
    make, cells = Blocks(), taps[0].shape[1]
    sums = []
    for number, tap in enumerate(taps):
        name = f"neck{number + 1}"
        maps = make.norm(make.convolution(tap, f"{name}_conv", settings.features, kernel=1), f"{name}_norm")
        if number:
            enlarge = keras.layers.UpSampling2D(2**number, interpolation="bilinear", name=f"{name}_upsample")
            maps = enlarge(maps)
            # Halving an odd map rounds up.
            surplus = maps.shape[1] - cells
            if surplus:
                maps = keras.layers.Cropping2D(((0, surplus), (0, surplus)), name=f"{name}_crop")(maps)
        sums.append(maps)
    added = keras.layers.Add(name="features_add")(sums) if len(sums) > 1 else sums[0]
    return keras.layers.ReLU(name="features_relu")(added)


def _stages(
    settings: PoseModelSettings, features: keras.KerasTensor, skeleton: Skeleton
) -> dict[str, keras.KerasTensor]:
    """Build the stages: PAF stages read the features and previous PAFs; heatmap stages also read previous heatmaps."""
    answers: dict[str, keras.KerasTensor] = {}
    last: dict[str, keras.KerasTensor] = {}
    channels = {"paf": 2 * len(skeleton.limbs), "heatmap": len(skeleton.joints)}
    for name in stage_names(settings):
        kind = name.rpartition("_")[2]
        before = [last[each] for each in dict.fromkeys(("paf", kind)) if each in last]
        answers[name] = last[kind] = _stage(settings, name, [features, *before], channels[kind])
    return answers


def _stage(settings: PoseModelSettings, name: str, read: list[keras.KerasTensor], channels: int) -> keras.KerasTensor:
    maps = keras.layers.Concatenate(name=f"{name}_concatenate")(read) if len(read) > 1 else read[0]
    maps = _convolution(settings, maps, f"{name}_entry", kernel=1)
    for block in range(1, settings.stage_depth + 1):
        inner = f"{name}_block{block}"
        maps = keras.layers.Add(name=f"{inner}_add")([maps, _convolution(settings, maps, inner, kernel=3)])
    if settings.dropout:
        maps = keras.layers.Dropout(settings.dropout, name=f"{name}_dropout")(maps)
    near_zero: Any = keras.initializers.RandomNormal(stddev=0.01)
    return keras.layers.Conv2D(channels, 1, kernel_initializer=near_zero, name=name)(maps)


def _convolution(settings: PoseModelSettings, maps: keras.KerasTensor, name: str, *, kernel: int) -> keras.KerasTensor:
    make, bias = Blocks(), not settings.batch_norm
    maps = make.convolution(maps, f"{name}_conv", settings.stage_width, kernel=kernel, bias=bias)
    return keras.layers.ReLU(name=f"{name}_relu")(maps) if bias else make.normed(maps, name)
