"""``model/description.json`` of a run: the model's layers and costs. Needs no TensorFlow."""

from __future__ import annotations

import math

from podline.base.frozen import Frozen, omitted
from podline.documents.completion import read_artifact_model
from podline.store.contract import Store

DESCRIPTION = "model/description.json"
# A training step costs as much as three forward passes: the gradients of inputs and of weights cost one pass each.
_PASSES = 3


def training_pflop(multiply_adds: float, examples: int) -> float:
    """Return the floating-point operations of a training in 10¹⁵.

    A multiply-add counts as two operations, a training step as three forward passes.

    Args:
        multiply_adds: multiply-adds of a forward pass for one example; see :attr:`LayerDescription.multiply_adds`.
        examples: number of examples in the training, over all epochs.
    """
    return 2 * _PASSES * multiply_adds * examples / 1e15


class LayerDescription(Frozen):
    """One layer.

    Attributes:
        name: name of the layer in the Keras model.
        kind: Keras class of the layer: ``Conv2D``, ``BatchNormalization`` …
        output_shape: shape without the batch axis: (height, width, channels), (values,) …; None for an axis of variable
            length.
        parameters: number of all weights, with moving averages.
        trainable_parameters: number of weights with a gradient.
        bytes: size of the parameters as float32.
        multiply_adds: multiply-adds of a forward pass for one example. As in papers, only convolutions, dense layers
            and attention count. None if unknown, for example for a layer class of another package.
    """

    name: str
    kind: str
    output_shape: tuple[int | None, ...]
    parameters: int
    trainable_parameters: int
    bytes: int
    multiply_adds: int | None

    def tile_waste(self, batch_size: int) -> float | None:
        """Return the share of padding in the layer's output on a TPU; None for a layer without multiply-adds.

        A TPU stores arrays in tiles of 8 × 128. It pads the last axis to a multiple of 128, and the product of all
        other axes to a multiple of 8.

        Args:
            batch_size: number of examples per step on one core.
        """
        sizes = [size or 1 for size in self.output_shape]
        if not self.multiply_adds or not sizes:
            return None
        rows, values = batch_size * math.prod(sizes[:-1]), sizes[-1]
        return 1 - rows * values / (math.ceil(rows / 8) * 8 * math.ceil(values / 128) * 128)


class ModelDescription(Frozen, extra="ignore"):
    """A model's layers and the sums over them. Podline 1.0 wrote further fields.

    Attributes:
        kind: the kind of network in the recipe's settings; ``pose`` for a pose network.
        weights: the published weights from which the training started, with source and licence; empty without them.
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
    weights: str = omitted("")
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
        """Text: the layers whose multiply-adds are unknown; empty if there are none."""
        names = [f"{layer.name} ({layer.kind})" for layer in self.layers if layer.multiply_adds is None]
        return f"without those of {', '.join(names)}, which are unknown" if names else ""


def read_description(store: Store, folder: str) -> ModelDescription:
    """Read the description of a run's model; raises the errors of :func:`read_artifact_model`."""
    return read_artifact_model(store, folder, DESCRIPTION, ModelDescription, "a model description")
