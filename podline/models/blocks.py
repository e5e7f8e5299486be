"""The building blocks of Podline's networks: stock Keras layers with names and He initialisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras


@dataclass(frozen=True)
class Blocks:
    """Builds layers for maps in one data format, with padding ``same``.

    Attributes:
        data_format: ``channels_last`` for maps (n, height, width, channels), or ``channels_first`` for maps
            (n, channels, height, width).
        limit: upper limit of ReLUs, or None.
        activation: ``relu``, or the name of another Keras activation.
    """

    data_format: str = "channels_last"
    limit: float | None = None
    activation: str = "relu"

    @property
    def axis(self) -> int:
        """Return the axis of the channels."""
        return 1 if self.data_format == "channels_first" else -1

    def begin(self, image_shape: tuple[int, int, int]) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """Return the input tensor for images (height, width, channels), and the same images in the data format."""
        image: Any = keras.Input(image_shape)
        return image, keras.layers.Permute((3, 1, 2), name="channels_first")(image) if self.axis == 1 else image

    def convolution(
        self, maps: keras.KerasTensor, name: str, filters: int, *, kernel: int = 3, stride: int = 1, bias: bool = False
    ) -> keras.KerasTensor:
        """Apply a square convolution; give ``bias`` only if no batch norm follows, which would cancel a bias."""
        he_normal: Any = keras.initializers.HeNormal()
        return keras.layers.Conv2D(
            filters,
            kernel,
            stride,
            padding="same",
            data_format=self.data_format,
            use_bias=bias,
            kernel_initializer=he_normal,
            name=name,
        )(maps)

    def depthwise(self, maps: keras.KerasTensor, name: str, *, kernel: int = 3, stride: int) -> keras.KerasTensor:
        """Apply a square convolution to each channel separately."""
        # He initialisation by hand, because Keras would count all channels as inputs of each filter.
        he_normal: Any = keras.initializers.RandomNormal(stddev=math.sqrt(2) / kernel)
        return keras.layers.DepthwiseConv2D(
            kernel,
            stride,
            padding="same",
            data_format=self.data_format,
            use_bias=False,
            depthwise_initializer=he_normal,
            name=name,
        )(maps)

    def norm(self, maps: keras.KerasTensor, name: str) -> keras.KerasTensor:
        """Apply batch normalisation over the channels. Ioffe, Szegedy: "Batch Normalization", ICML 2015."""
        return keras.layers.BatchNormalization(axis=self.axis, momentum=0.9, name=name)(maps)

    def normed(self, maps: keras.KerasTensor, name: str) -> keras.KerasTensor:
        """Apply a batch norm and the activation."""
        normed = self.norm(maps, f"{name}_norm")
        if self.activation == "relu":
            return keras.layers.ReLU(self.limit, name=f"{name}_relu")(normed)
        return keras.layers.Activation(self.activation, name=f"{name}_{self.activation}")(normed)

    def convolved(
        self, maps: keras.KerasTensor, name: str, filters: int, *, kernel: int = 3, stride: int = 1
    ) -> keras.KerasTensor:
        """Apply a convolution, a batch norm and the activation."""
        return self.normed(self.convolution(maps, f"{name}_conv", filters, kernel=kernel, stride=stride), name)


def classifier(features: keras.KerasTensor, classes: int, dropout: float) -> keras.KerasTensor:
    """Compute logits (n, classes) from features (n, values)."""
    if dropout:
        features = keras.layers.Dropout(dropout, name="dropout")(features)
    return keras.layers.Dense(classes, name="classifier")(features)


def make_divisible(channels: float) -> int:
    """Round channels to a multiple of 8 that is at least 90 % of ``channels``.

    Sandler et al.: "MobileNetV2", CVPR 2018; the authors' ``make_divisible``.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
