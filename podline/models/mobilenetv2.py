"""Builds MobileNetV2 for images of any size.

Sandler et al.: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. If the shorter side has
97 pixels or more, the strides are those of the paper. For smaller images, the first strides are omitted until the last
map has at least 4 × 4 positions, so early layers keep the resolution.
"""

from __future__ import annotations

import math

import keras

from podline.models.blocks import Blocks, classifier, make_divisible
from podline.recipes.settings import ModelSettings

# Table 2 of the paper: expansion factor, channels, number of blocks, stride of the first block.
BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM_CHANNELS = 32
HEAD_CHANNELS = 1280
HALVINGS = 5
SMALLEST_MAP = 4
RELU_LIMIT = 6.0


def mobilenetv2(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build a stem, 17 bottlenecks, a head and a classifier; a width below 1 does not narrow the head (section 6.1)."""
    make = Blocks(settings.data_format, RELU_LIMIT)
    image, maps = make.begin(image_shape)
    maps = backbone(make, maps, settings.width, min(image_shape[:2]))
    maps = make.convolved(maps, "head", make_divisible(HEAD_CHANNELS * max(1.0, settings.width)), kernel=1)
    features = keras.layers.GlobalAveragePooling2D(data_format=make.data_format, name="pool")(maps)
    return keras.Model(image, classifier(features, classes, settings.dropout))


def backbone(make: Blocks, maps: keras.KerasTensor, width: float, side: int) -> keras.KerasTensor:
    """Return the output maps of the last bottleneck, for images whose shorter side has ``side`` pixels."""
    strides = iter(_strides(side))
    channels = make_divisible(STEM_CHANNELS * width)
    maps = make.convolved(maps, "stem", channels, stride=next(strides))
    number = 0
    for expansion, base, blocks, first_stride in BOTTLENECKS:
        filters = make_divisible(base * width)
        for block in range(blocks):
            number += 1
            stride = next(strides) if block == 0 and first_stride == 2 else 1
            maps = bottleneck(make, maps, f"block{number:02d}", channels * expansion, filters, stride)
            channels = filters
    return maps


def _strides(side: int) -> list[int]:
    """Return the strides of the five layers that halve a 224-pixel image, for an image with this shorter side."""
    halvings = HALVINGS
    while halvings and math.ceil(side / 2**halvings) < SMALLEST_MAP:
        halvings -= 1
    return [1] * (HALVINGS - halvings) + [2] * halvings


def bottleneck(
    make: Blocks, maps: keras.KerasTensor, name: str, expanded: int, filters: int, stride: int, kernel: int = 3
) -> keras.KerasTensor:
    """Apply an inverted residual: expand, filter each channel, project. No activation follows the projection."""
    channels, before = maps.shape[make.axis], maps
    if expanded > channels:
        maps = make.convolved(maps, f"{name}_expand", expanded, kernel=1)
    maps = make.depthwise(maps, f"{name}_depthwise_conv", kernel=kernel, stride=stride)
    maps = make.normed(maps, f"{name}_depthwise")
    maps = make.norm(make.convolution(maps, f"{name}_project_conv", filters, kernel=1), f"{name}_project_norm")
    return keras.layers.Add(name=f"{name}_add")([before, maps]) if stride == 1 and channels == filters else maps
