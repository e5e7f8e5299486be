"""A small residual network that trains in minutes on two CPU cores.

The shape of Jordan, K.: "94% on CIFAR-10 in 3.29 Seconds on a Single A100 GPU", 2024 (airbench), made narrower: a stage
is a convolution, a max pool that halves the resolution, and residual blocks; the classifier reads the largest value of
each channel, and its logits are scaled down, which slows the classifier's learning.

Only one convolution and a narrow stem see the full resolution: on a CPU the small, wide layers are the ones that run
near its peak. On 8,068 CIFAR-10 images a basic-block ResNet with as many parameters took 20 % more time an epoch and
was behind at every epoch; with the mean in place of the largest value, and unscaled, it ended two points lower.
"""

from __future__ import annotations

import keras

from podline.models.blocks import Blocks, classifier, make_divisible
from podline.recipes.settings import ModelSettings

STEM_CHANNELS = 16
STAGE_CHANNELS = (32, 64, 128)
"""Each stage halves height and width and has this many channels at width 1."""
LOGIT_SCALE = 0.125


def resnet(image_shape: tuple[int, int, int], classes: int, settings: ModelSettings) -> keras.Model:
    """Return a stem at full resolution, stages that halve it, a classifier on each channel's maximum."""
    make = Blocks(settings.data_format, activation=settings.activation)
    image, maps = make.begin(image_shape)
    maps = make.convolved(maps, "stem", make_divisible(STEM_CHANNELS * settings.width))
    for stage, base in enumerate(STAGE_CHANNELS, start=1):
        channels = make_divisible(base * settings.width)
        maps = make.convolution(maps, f"stage{stage}_conv", channels)
        # At an odd border it takes the largest of what is there.
        pool = keras.layers.MaxPooling2D(2, padding="same", data_format=make.data_format, name=f"stage{stage}_pool")
        maps = make.normed(pool(maps), f"stage{stage}")
        for block in range(1, settings.depth + 1):
            name = f"stage{stage}_block{block:02d}"
            maps = keras.layers.Add(name=f"{name}_add")([maps, make.convolved(maps, name, channels)])
    features = keras.layers.GlobalMaxPooling2D(data_format=make.data_format, name="pool")(maps)
    logits = classifier(features, classes, settings.dropout)
    return keras.Model(image, keras.layers.Rescaling(LOGIT_SCALE, name="logits")(logits))
