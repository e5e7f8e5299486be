"""MobileNetV2 for images of any size.

Sandler et al.: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. At 128 pixels and above the strides
are the paper's. Smaller images keep their resolution in the early layers: halvings are left out from the start of the
network until the last map has at least 4 × 4 places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from podline.models.network import (
    Add,
    BatchNorm,
    Convolution,
    Dense,
    DepthwiseConvolution,
    Dropout,
    GlobalAveragePool,
    Layer,
    Normalise,
    Relu,
    make_divisible,
)
from podline.recipes.settings import ModelSettings

# Table 2 of the paper: expansion factor, channels, number of blocks, stride of the first of them.
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


def mobilenetv2_layers(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> Iterator[Layer]:
    """The layers: a stem, 17 bottlenecks, a head that grows with a width above 1 only (section 6.1), a classifier."""
    strides = iter(_strides(min(image_shape[:2])))
    channels = make_divisible(STEM_CHANNELS * settings.width)
    yield Normalise("normalise")
    yield from _convolution("stem", channels, kernel=3, stride=next(strides))
    source, number = "stem_relu", 0
    for expansion, base, blocks, first_stride in BOTTLENECKS:
        filters = make_divisible(base * settings.width)
        for block in range(blocks):
            number += 1
            name = f"block{number:02d}"
            stride = next(strides) if block == 0 and first_stride == 2 else 1
            adds = stride == 1 and channels == filters
            yield from _bottleneck(name, expansion, channels, filters, stride)
            if adds:
                yield Add(f"{name}_add", (source, f"{name}_project_norm"))
            source = f"{name}_add" if adds else f"{name}_project_norm"
            channels = filters
    yield from _convolution("head", make_divisible(HEAD_CHANNELS * max(1.0, settings.width)), kernel=1, stride=1)
    yield GlobalAveragePool("pool")
    if settings.dropout:
        yield Dropout("dropout", rate=settings.dropout)
    yield Dense("classifier", units=classes)


def _strides(side: int) -> list[int]:
    """The strides of the five layers that halve a 224-pixel image, for an image with this shorter side."""
    halvings = HALVINGS
    while halvings and math.ceil(side / 2**halvings) < SMALLEST_MAP:
        halvings -= 1
    return [1] * (HALVINGS - halvings) + [2] * halvings


def _bottleneck(name: str, expansion: int, channels: int, filters: int, stride: int) -> Iterator[Layer]:
    """Expand, filter each channel, project; no activation after the projection: it would lose what a ReLU cuts off."""
    if expansion > 1:
        yield from _convolution(f"{name}_expand", channels * expansion, kernel=1, stride=1)
    yield DepthwiseConvolution(f"{name}_depthwise_conv", kernel=3, stride=stride)
    yield BatchNorm(f"{name}_depthwise_norm")
    yield Relu(f"{name}_depthwise_relu", limit=6.0)
    yield Convolution(f"{name}_project_conv", filters=filters, kernel=1)
    yield BatchNorm(f"{name}_project_norm")


def _convolution(name: str, channels: int, *, kernel: int, stride: int) -> Iterator[Layer]:
    yield Convolution(f"{name}_conv", filters=channels, kernel=kernel, stride=stride)
    yield BatchNorm(f"{name}_norm")
    yield Relu(f"{name}_relu", limit=6.0)
