"""A small residual network that trains in minutes on two CPU cores.

The network follows Jordan, K.: "94% on CIFAR-10 in 3.29 Seconds on a Single A100 GPU", 2024 (airbench), but is
narrower. A stage is a convolution, a max pool that halves the resolution, and residual blocks. The classifier reads the
largest value of each channel. The logits are scaled down, which slows the classifier's learning.

Only one convolution and a narrow stem run at full resolution, since small, wide layers come closest to a CPU's peak. On
8,068 CIFAR-10 images a basic-block ResNet with as many parameters took 20 % more time per epoch and was worse at every
epoch. With the mean instead of the largest value, and unscaled logits, the final accuracy was two points lower.
"""

from __future__ import annotations

import keras

from podline.models.blocks import Blocks, classifier, make_divisible
from podline.recipes.settings import ModelSettings

STEM_CHANNELS = 16
STAGE_CHANNELS = (32, 64, 128)
"""Channels of each stage at width 1; each stage halves height and width."""
LOGIT_SCALE = 0.125


def resnet(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Build a stem at full resolution, stages that halve it, and a classifier on each channel's maximum."""
    make = Blocks(settings.data_format, activation=settings.activation)
    image, maps = make.begin(image_shape)
    maps = make.convolved(maps, "stem", make_divisible(STEM_CHANNELS * settings.width))
    for stage, base in enumerate(STAGE_CHANNELS, start=1):
        channels = make_divisible(base * settings.width)
        maps = make.convolution(maps, f"stage{stage}_conv", channels)
        # At an odd border the pool covers the existing pixels.
        pool = keras.layers.MaxPooling2D(2, padding="same", data_format=make.data_format, name=f"stage{stage}_pool")
        maps = make.normed(pool(maps), f"stage{stage}")
        for block in range(1, settings.depth + 1):
            name = f"stage{stage}_block{block:02d}"
            maps = keras.layers.Add(name=f"{name}_add")([maps, make.convolved(maps, name, channels)])
    features = keras.layers.GlobalMaxPooling2D(data_format=make.data_format, name="pool")(maps)
    logits = classifier(features, classes, settings.dropout)
    return keras.Model(image, keras.layers.Rescaling(LOGIT_SCALE, name="logits")(logits))
