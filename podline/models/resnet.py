"""A small residual network that trains in minutes on two CPU cores.

Basic blocks as in He K. et al.: "Deep Residual Learning for Image Recognition", CVPR 2016; where a block changes the
shape, its shortcut averages before it projects: ResNet-D of He T. et al.: "Bag of Tricks for Image Classification with
Convolutional Neural Networks", CVPR 2019.

Only a narrow stem sees the full resolution: on a CPU the small, wide layers are the ones that run near its peak, and
with as many parameters a network with a stage at full resolution took two to four times as long for a step.
"""

from __future__ import annotations

from collections.abc import Iterator

from podline.models.network import (
    Add,
    AveragePool,
    BatchNorm,
    Convolution,
    Dense,
    Dropout,
    GlobalAveragePool,
    Layer,
    Normalise,
    Relu,
    make_divisible,
)
from podline.recipes.settings import ModelSettings

STEM_CHANNELS = 16
STAGE_CHANNELS = (64, 144)
"""Each stage halves height and width and has this many channels at width 1."""


def resnet_layers(settings: ModelSettings, classes: int) -> Iterator[Layer]:
    """The layers: a stem at full resolution, stages that halve it, a classifier on the mean over all pixels."""
    yield Normalise("normalise")
    channels = make_divisible(STEM_CHANNELS * settings.width)
    yield from _convolution("stem", channels, kernel=3, stride=1)
    yield Relu("stem_relu")
    source = "stem_relu"
    for stage, base in enumerate(STAGE_CHANNELS, start=1):
        channels = make_divisible(base * settings.width)
        for block in range(1, settings.depth + 1):
            name = f"stage{stage}_block{block:02d}"
            yield from _block(name, source, channels, reshapes=block == 1)
            source = f"{name}_relu"
    yield GlobalAveragePool("pool")
    if settings.dropout:
        yield Dropout("dropout", rate=settings.dropout)
    yield Dense("classifier", units=classes)


def _block(name: str, source: str, channels: int, *, reshapes: bool) -> Iterator[Layer]:
    """Two convolutions beside a shortcut; ``reshapes`` halves the resolution and changes the channels."""
    stride = 2 if reshapes else 1
    yield from _convolution(f"{name}_first", channels, kernel=3, stride=stride, inputs=(source,))
    yield Relu(f"{name}_first_relu")
    yield from _convolution(f"{name}_second", channels, kernel=3, stride=1)
    if reshapes:
        yield AveragePool(f"{name}_shortcut_pool", (source,), size=stride)
        yield from _convolution(f"{name}_shortcut", channels, kernel=1, stride=1)
    shortcut = f"{name}_shortcut_norm" if reshapes else source
    yield Add(f"{name}_add", (f"{name}_second_norm", shortcut))
    yield Relu(f"{name}_relu")


def _convolution(
    name: str, channels: int, *, kernel: int, stride: int, inputs: tuple[str, ...] = ()
) -> Iterator[Layer]:
    yield Convolution(f"{name}_conv", inputs, filters=channels, kernel=kernel, stride=stride)
    yield BatchNorm(f"{name}_norm")
