"""``model/description.json`` of a run: the model's layers and costs. Needs no TensorFlow."""

from __future__ import annotations

import math
import operator

from pydantic import Field

from podline.base.frozen import Frozen

DESCRIPTION = "model/description.json"
# A training step costs three forward passes: the gradients of inputs and of weights cost one each.
_PASSES = 3


def training_pflop(multiply_adds: float, examples: int) -> float:
    """Return the petaflop of a training: a multiply-add is two operations, a step is three forward passes.

    Args:
        multiply_adds: multiply-adds of a forward pass for one example; see :attr:`LayerDescription.multiply_adds`.
        examples: number of examples in the training, over all epochs.
    """
    return 2 * _PASSES * multiply_adds * examples / 1e15


class LayerDescription(Frozen):
    """One layer.

    Attributes:
        name: the layer's name in the Keras model.
        kind: its class in Keras: ``Conv2D``, ``BatchNormalization`` …
        output_shape: shape without the batch: (height, width, channels), (values,) …; None for an axis of variable
            length.
        parameters: number of stored values, trained or averaged.
        trainable_parameters: number of values with a gradient.
        bytes: size of the parameters as float32.
        multiply_adds: for one example; only convolutions, dense layers and attention count, as in papers. None means
            unknown, as for a layer of an external class.
    """

    name: str
    kind: str
    output_shape: tuple[int | None, ...]
    parameters: int
    trainable_parameters: int
    bytes: int
    multiply_adds: int | None

    def tile_waste(self, batch_size: int) -> float | None:
        """Return the share of a TPU's tiles that the layer's output leaves empty; None for a layer without products.

        A TPU stores arrays in tiles of 8 × 128: it pads the last axis to a multiple of 128, and the product of all
        others to a multiple of 8.

        Args:
            batch_size: number of examples per step on one core.
        """
        sizes = [size or 1 for size in self.output_shape]
        if not self.multiply_adds or not sizes:
            return None
        rows, values = batch_size * math.prod(sizes[:-1]), sizes[-1]
        return 1 - rows * values / (math.ceil(rows / 8) * 8 * math.ceil(values / 128) * 128)


class ModelDescription(Frozen, extra="ignore"):
    """A model's layers and their sums. Podline 1.0 wrote further fields.

    Attributes:
        kind: the model kind of the settings; ``pose`` for a pose network.
        weights: the published weights with which the training began, with their source and licence; empty for others.
        image_shape: (height, width, channels).
        classes: number of logits; 0 for a model that outputs maps.
        layers: layers in the order of computation.
        parameters: sum over the layers.
        trainable_parameters: sum over the layers.
        bytes: size of all parameters as float32.
        trainable_bytes: size of the trainable parameters as float32.
        multiply_adds: sum over the layers with known multiply-adds, for one example.
    """

    kind: str
    weights: str = Field(default="", exclude_if=operator.not_)
    image_shape: tuple[int, int, int]
    classes: int
    layers: tuple[LayerDescription, ...]
    parameters: int
    trainable_parameters: int
    bytes: int
    trainable_bytes: int
    multiply_adds: int

    @property
    def uncounted(self) -> str:
        """The layers whose multiply-adds are unknown, as text; empty if all are known."""
        names = [f"{layer.name} ({layer.kind})" for layer in self.layers if layer.multiply_adds is None]
        return f"without those of {', '.join(names)}, which are unknown" if names else ""
