"""The pose network as plain data: from an image to part affinity fields and heatmaps, stage by stage.

Backbone and neck: MobileNetV2's last map of each resolution from the maps' own down to a 32nd of the image, each
projected to the same number of channels, enlarged and added up, after Lin et al.: "Feature Pyramid Networks for Object
Detection", CVPR 2017. So a cell knows its surroundings without large kernels at full resolution.

Stages: after Cao et al.: "OpenPose: Realtime Multi-Person 2D Pose Estimation using Part Affinity Fields", TPAMI 2019:
first the fields are found and refined, then the heatmaps with the fields' help. A stage here is a few residual blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from podline.data.keypoints import JOINTS, LIMBS
from podline.errors import SettingsError
from podline.models.mobilenetv2 import mobilenetv2_layers
from podline.models.network import (
    Add,
    BatchNorm,
    Concatenate,
    Convolution,
    Crop,
    Dropout,
    Layer,
    Network,
    Projection,
    Relu,
    Shape,
    Upsample,
)
from podline.recipes.pose_settings import PoseModelSettings
from podline.recipes.settings import ModelSettings

FEATURES = "features_relu"
"""The layer that all stages read."""

PAF_CHANNELS, HEATMAP_CHANNELS = 2 * len(LIMBS), len(JOINTS)


def stage_names(settings: PoseModelSettings) -> tuple[str, ...]:
    """Names of the stages and of the layers with their answers, in the order in which they are computed.

    ``stage1_paf``, ``stage2_paf``, ``stage3_heatmap`` …: sorted by name they are in that order too, up to nine.
    """
    kinds = ["paf"] * settings.paf_stages + ["heatmap"] * settings.heatmap_stages
    return tuple(f"stage{number}_{kind}" for number, kind in enumerate(kinds, start=1))


def pose_network(settings: PoseModelSettings, side: int, stride: int) -> Network:
    """The layers of the pose network; the answers are the outputs of the layers in :func:`stage_names`.

    Args:
        settings: how wide, how many stages.
        side: of the network's input, in pixels; a multiple of the stride.
        stride: pixels of the input to a cell of the answers.

    Raises:
        SettingsError: a side that is no multiple of the stride, a stride that the backbone does not have, a prefix in
            ``l2_layers`` that fits no layer.
    """
    if side % stride:
        raise SettingsError(f"side={side} vs stride={stride}: the network's input must be whole cells")
    image_shape = (side, side, 3)
    backbone = tuple(_backbone(settings, image_shape))
    taps = _taps(Network(image_shape, backbone), side // stride)
    if not taps or taps[0][1][0] != side // stride:
        raise SettingsError(f"stride={stride} vs an input of {side} pixels: MobileNetV2 has no map of that size")
    layers = (*backbone, *_neck(settings, taps), *_stages(settings))
    network = Network(image_shape, layers)
    network.layers_named(settings.l2_layers)
    return network


def _backbone(settings: PoseModelSettings, image_shape: tuple[int, int, int]) -> Iterator[Layer]:
    """MobileNetV2 up to its last bottleneck."""
    layers = mobilenetv2_layers(ModelSettings(kind="mobilenetv2", width=settings.width), image_shape, classes=2)
    return itertools.takewhile(lambda layer: not layer.name.startswith("head"), layers)


def _taps(backbone: Network, cells: int) -> list[tuple[str, Shape]]:
    """The last layer of each resolution from that of the answers on, with its shape; the finest first."""
    last: dict[int, tuple[str, Shape]] = {}
    for layer, shape in backbone.shaped():
        made = layer.output_shape(shape)
        last[made[0]] = (layer.name, made)
    return [last[height] for height in sorted(last, reverse=True) if height <= cells]


def _neck(settings: PoseModelSettings, taps: list[tuple[str, Shape]]) -> Iterator[Layer]:
    """The sum of all resolutions at the finest, after a batch norm each."""
    cells = taps[0][1][0]
    sums = []
    for number, (source, shape) in enumerate(taps):
        name = f"neck{number + 1}"
        yield Convolution(f"{name}_conv", (source,), filters=settings.features, kernel=1)
        yield BatchNorm(f"{name}_norm")
        sums.append(f"{name}_norm")
        if number:
            yield Upsample(f"{name}_upsample", factor=2**number)
            sums[-1] = f"{name}_upsample"
            # An odd map was rounded up when it was halved.
            surplus = shape[0] * 2**number - cells
            if surplus:
                yield Crop(f"{name}_crop", bottom=surplus, right=surplus)
                sums[-1] = f"{name}_crop"
    if len(sums) > 1:
        yield Add("features_add", tuple(sums))
    yield Relu(FEATURES)


def _stages(settings: PoseModelSettings) -> Iterator[Layer]:
    """Each PAF stage reads the features and the PAFs before it; each heatmap stage the heatmaps before it as well."""
    pafs = heatmaps = ""
    for name in stage_names(settings):
        is_paf = name.endswith("paf")
        read = [FEATURES, pafs] if is_paf else [FEATURES, pafs, heatmaps]
        yield from _stage(settings, name, [source for source in read if source], is_paf=is_paf)
        pafs, heatmaps = (name, heatmaps) if is_paf else (pafs, name)


def _stage(settings: PoseModelSettings, name: str, read: list[str], *, is_paf: bool) -> Iterator[Layer]:
    source = read[0]
    if len(read) > 1:
        channels = settings.features + PAF_CHANNELS + HEATMAP_CHANNELS * (len(read) - 2)
        source = f"{name}_concatenate"
        yield Concatenate(source, tuple(read), channels=channels)
    yield from _convolution(settings, f"{name}_entry", source, kernel=1)
    source = f"{name}_entry_relu"
    for block in range(1, settings.stage_depth + 1):
        inner = f"{name}_block{block}"
        yield from _convolution(settings, inner, source, kernel=3)
        yield Add(f"{inner}_add", (source, f"{inner}_relu"))
        source = f"{inner}_add"
    if settings.dropout:
        yield Dropout(f"{name}_dropout", rate=settings.dropout)
    yield Projection(name, filters=PAF_CHANNELS if is_paf else HEATMAP_CHANNELS)


def _convolution(settings: PoseModelSettings, name: str, source: str, *, kernel: int) -> Iterator[Layer]:
    bias = not settings.batch_norm
    yield Convolution(f"{name}_conv", (source,), filters=settings.stage_width, kernel=kernel, bias=bias)
    if settings.batch_norm:
        yield BatchNorm(f"{name}_norm")
    yield Relu(f"{name}_relu")
