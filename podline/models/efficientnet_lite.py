"""Builds EfficientNet-Lite0, for images of any size.

EfficientNet-Lite0 is EfficientNet-B0 without squeeze and excitation, and with ReLU6, for integer arithmetic and
accelerators. Tan, Le: "EfficientNet", ICML 2019; Liu: "Higher accuracy on vision models with EfficientNet-Lite",
TensorFlow's blog, 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from typing import NamedTuple

import keras

from podline.base.arrays import Array
from podline.models.blocks import Blocks, classifier
from podline.models.mobilenetv2 import RELU_LIMIT, bottleneck
from podline.models.weights_files import Layers
from podline.recipes.settings import ModelSettings

# Blocks, kernel, stride of the first block, expansion factor, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM_CHANNELS = 32
HEAD_CHANNELS = 1280

# PyTorch's name of a layer in a block → ours.
_IN_BLOCKS = {
    "_expand_conv": "expand_conv",
    "_bn0": "expand_norm",
    "_depthwise_conv": "depthwise_conv",
    "_bn1": "depthwise_norm",
    "_project_conv": "project_conv",
    "_bn2": "project_norm",
}
_OUTSIDE = {
    "_conv_stem": "stem_conv",
    "_bn0": "stem_norm",
    "_conv_head": "head_conv",
    "_bn1": "head_norm",
    "_fc": "classifier",
}
_OF_NORMS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


class _Block(NamedTuple):
    name: str
    kernel: int
    stride: int
    expansion: int
    channels: int


def efficientnet_lite0(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build a stem, 16 bottlenecks, a head and a classifier; layer names begin with the name of their part."""
    make = Blocks(settings.data_format, RELU_LIMIT)
    image, maps = make.begin(image_shape)
    maps = trunk(make, maps)
    maps = make.convolved(maps, "head", HEAD_CHANNELS, kernel=1)
    features = keras.layers.GlobalAveragePooling2D(data_format=make.data_format, name="pool")(maps)
    return keras.Model(image, classifier(features, classes, settings.dropout))


def trunk(make: Blocks, maps: keras.KerasTensor, stages: int | None = None) -> keras.KerasTensor:
    """Return the output maps of the first ``stages`` stages of bottlenecks; by default of all stages."""
    maps = make.convolved(maps, "stem", STEM_CHANNELS, stride=2)
    for block in _blocks(stages):
        expanded = maps.shape[make.axis] * block.expansion
        maps = bottleneck(make, maps, block.name, expanded, block.channels, block.stride, block.kernel)
    return maps


def _blocks(stages: int | None = None) -> Iterator[_Block]:
    """Yield ``block1a``, ``block2a``, ``block2b`` and so on, of the first ``stages`` stages; by default of all."""
    for stage, (blocks, kernel, stride, expansion, channels) in enumerate(STAGES[:stages], start=1):
        for letter in ascii_lowercase[:blocks]:
            yield _Block(f"block{stage}{letter}", kernel, stride if letter == "a" else 1, expansion, channels)


def from_pytorch(published: Layers) -> Layers:
    """Convert the published PyTorch tensors to this network's layers and kernel layouts."""
    names = _OUTSIDE | {
        f"_blocks.{number}.{theirs}": f"{block.name}_{ours}"
        for number, block in enumerate(_blocks())
        for theirs, ours in _IN_BLOCKS.items()
    }
    return {
        names.get(layer, layer): dict(_variable(names.get(layer, layer), *pair) for pair in tensors.items())
        for layer, tensors in published.items()
    }


def _variable(layer: str, name: str, values: Array) -> tuple[str, Array]:
    if layer.endswith("_norm"):
        return _OF_NORMS[name], values
    if values.ndim == 1:
        return "bias", values
    kernels = {2: (1, 0), 4: (2, 3, 0, 1) if layer.endswith("depthwise_conv") else (2, 3, 1, 0)}
    return "kernel", values.transpose(kernels[values.ndim])
