"""A network as plain data: a list of layers, each with the arithmetic of its shapes, parameters and operations.

The same list is built with Keras (:mod:`podline.models.build`) and counted without it (:mod:`podline.models.counts`),
so what is described is what is trained. Shapes leave the batch out and are channels last: (height, width, channels).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from podline.errors import SettingsError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        name: unique in its network; recipes choose layers by the beginning of it.
        inputs: names of the layers it reads; empty for the layer before it in the list.
    """

    name: str
    inputs: tuple[str, ...] = ()

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of the output for an input of a shape."""
        return shape

    def trainable_parameters(self, shape: Shape) -> int:  # noqa: ARG002 (most layers have none)
        """Numbers that training changes by gradients."""
        return 0

    def fixed_parameters(self, shape: Shape) -> int:  # noqa: ARG002 (most layers have none)
        """Numbers that are stored with the model but have no gradient: the moving averages of batch norm."""
        return 0

    def multiply_adds(self, shape: Shape) -> int:  # noqa: ARG002 (most layers have none)
        """Multiply-adds for one example, counted as papers do: convolutions and dense layers, nothing else."""
        return 0

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel that L2 can be put on."""
        return False


@dataclass(frozen=True)
class Normalise(Layer):
    """Pixels 0…255 less the mean, divided by the standard deviation; constants of the data, not parameters."""


@dataclass(frozen=True, kw_only=True)
class Convolution(Layer):
    """A square convolution with padding ``same``.

    Attributes:
        filters: output channels.
        kernel: side in pixels.
        stride: pixels from one application to the next, both ways.
        bias: whether something is added to each channel; a batch norm that follows would take it away again.
    """

    filters: int
    kernel: int
    stride: int = 1
    bias: bool = False

    def output_shape(self, shape: Shape) -> Shape:
        """Height and width divided by the stride, rounded up."""
        return *_strided(shape, self.stride), self.filters

    def trainable_parameters(self, shape: Shape) -> int:
        """One number for each place of the kernel, input channel and filter, and the biases."""
        return (self.kernel**2 * shape[-1] + self.bias) * self.filters

    def multiply_adds(self, shape: Shape) -> int:
        """The kernel applied at each place of the output."""
        height, width, _ = self.output_shape(shape)
        return height * width * self.kernel**2 * shape[-1] * self.filters

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel that L2 can be put on."""
        return True


@dataclass(frozen=True, kw_only=True)
class DepthwiseConvolution(Layer):
    """A square convolution of each channel by itself, with padding ``same`` and no bias."""

    kernel: int
    stride: int = 1

    def output_shape(self, shape: Shape) -> Shape:
        """Height and width divided by the stride, rounded up; the channels stay."""
        return *_strided(shape, self.stride), shape[-1]

    def trainable_parameters(self, shape: Shape) -> int:
        """One number for each place of the kernel and channel."""
        return self.kernel**2 * shape[-1]

    def multiply_adds(self, shape: Shape) -> int:
        """The kernel applied at each place of the output."""
        height, width, _ = self.output_shape(shape)
        return height * width * self.trainable_parameters(shape)

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel that L2 can be put on."""
        return True


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalisation over the channels. Ioffe, Szegedy: "Batch Normalization", ICML 2015."""

    def trainable_parameters(self, shape: Shape) -> int:
        """Scale and offset of each channel."""
        return 2 * shape[-1]

    def fixed_parameters(self, shape: Shape) -> int:
        """Moving mean and variance of each channel."""
        return 2 * shape[-1]


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """max(x, 0), cut at ``limit`` if there is one."""

    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Projection(Layer):
    """A weighted sum of the channels and a bias at each place, for each of ``filters`` maps; all near zero at first."""

    filters: int

    def output_shape(self, shape: Shape) -> Shape:
        """The channels become ``filters``."""
        return *shape[:-1], self.filters

    def trainable_parameters(self, shape: Shape) -> int:
        """A weight for each channel and filter, a bias for each filter."""
        return (shape[-1] + 1) * self.filters

    def multiply_adds(self, shape: Shape) -> int:
        """One for each place, channel and filter."""
        return math.prod(shape) * self.filters

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel that L2 can be put on."""
        return True


@dataclass(frozen=True, kw_only=True)
class Upsample(Layer):
    """Height and width times ``factor``, linearly between the centres of pixels."""

    factor: int

    def output_shape(self, shape: Shape) -> Shape:
        """Height and width times the factor."""
        return shape[0] * self.factor, shape[1] * self.factor, shape[2]


@dataclass(frozen=True, kw_only=True)
class Crop(Layer):
    """All but some rows at the ``bottom`` and some columns on the ``right``."""

    bottom: int
    right: int

    def output_shape(self, shape: Shape) -> Shape:
        """Height and width less what is cut off."""
        return shape[0] - self.bottom, shape[1] - self.right, shape[2]


@dataclass(frozen=True, kw_only=True)
class Concatenate(Layer):
    """The channels of several inputs, ``channels`` in all."""

    channels: int

    def output_shape(self, shape: Shape) -> Shape:
        """The channels become ``channels``."""
        return *shape[:-1], self.channels


@dataclass(frozen=True)
class Add(Layer):
    """The sum of two inputs of one shape."""


@dataclass(frozen=True, kw_only=True)
class MaxPool(Layer):
    """The largest of squares of ``size`` × ``size`` pixels that do not overlap; at an odd border, of what is there."""

    size: int

    def output_shape(self, shape: Shape) -> Shape:
        """Height and width divided by the size, rounded up."""
        return *_strided(shape, self.size), shape[-1]


@dataclass(frozen=True)
class GlobalAveragePool(Layer):
    """The mean over all pixels."""

    def output_shape(self, shape: Shape) -> Shape:
        """(channels,)."""
        return shape[-1:]


@dataclass(frozen=True)
class GlobalMaxPool(Layer):
    """The largest value over all pixels."""

    def output_shape(self, shape: Shape) -> Shape:
        """(channels,)."""
        return shape[-1:]


@dataclass(frozen=True, kw_only=True)
class Scale(Layer):
    """All values times a constant."""

    factor: float


@dataclass(frozen=True)
class Flatten(Layer):
    """All values in a row."""

    def output_shape(self, shape: Shape) -> Shape:
        """(height × width × channels,)."""
        return (math.prod(shape),)


@dataclass(frozen=True, kw_only=True)
class Dropout(Layer):
    """A share of the values set to zero in training, the others scaled up."""

    rate: float


@dataclass(frozen=True, kw_only=True)
class Dense(Layer):
    """A weighted sum of all inputs and a bias, for each of ``units`` outputs."""

    units: int

    def output_shape(self, shape: Shape) -> Shape:  # noqa: ARG002 (any length in, units out)
        """(units,)."""
        return (self.units,)

    def trainable_parameters(self, shape: Shape) -> int:
        """A weight for each input and output, a bias for each output."""
        return (shape[-1] + 1) * self.units

    def multiply_adds(self, shape: Shape) -> int:
        """One for each input and output."""
        return shape[-1] * self.units

    @property
    def has_kernel(self) -> bool:
        """Whether there is a kernel that L2 can be put on."""
        return True


@dataclass(frozen=True)
class Network:
    """Layers in the order in which they are computed.

    Attributes:
        image_shape: (height, width, channels) of the input.
        layers: the first reads the image, the last gives the logits.
    """

    image_shape: tuple[int, int, int]
    layers: tuple[Layer, ...]

    def wired(self) -> Iterator[tuple[Layer, tuple[str, ...]]]:
        """Each layer with the names of the layers that it reads; the first one reads none."""
        previous: tuple[str, ...] = ()
        for layer in self.layers:
            yield layer, layer.inputs or previous
            previous = (layer.name,)

    def shaped(self) -> Iterator[tuple[Layer, Shape]]:
        """Each layer with the shape of its input (of each input, where there are two)."""
        outputs: dict[str, Shape] = {}
        for layer, inputs in self.wired():
            shape = outputs[inputs[0]] if inputs else self.image_shape
            outputs[layer.name] = layer.output_shape(shape)
            yield layer, shape

    def layers_named(self, prefixes: tuple[str, ...]) -> frozenset[str]:
        """The names of the layers with a kernel that start with one of the prefixes.

        Raises:
            SettingsError: a prefix fits none of them.
        """
        names = [layer.name for layer in self.layers if layer.has_kernel]
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in names):
                raise SettingsError(f"l2_layers: no layer's name starts with {prefix!r}; there are {', '.join(names)}")
        return frozenset(name for name in names if name.startswith(prefixes))


def _strided(shape: Shape, stride: int) -> tuple[int, int]:
    """Height and width after padding ``same`` and a stride."""
    return math.ceil(shape[0] / stride), math.ceil(shape[1] / stride)


def make_divisible(channels: float, divisor: int = 8) -> int:
    """Channels rounded to a multiple of the divisor, but never below 90 % of what was asked for.

    Sandler et al.: "MobileNetV2", CVPR 2018; the authors' ``make_divisible``.
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor
