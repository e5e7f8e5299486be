"""Lists the layer calls of a built Keras model, and counts the multiply-adds of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
from keras import layers

from podline.models.keras_internals import LayerScale, has_graph, nodes_of
from podline.models.layer_copies import STOCK

Shape = tuple[Any, ...]
"""A shape without the batch; None for an axis of variable length."""


class Call(NamedTuple):
    """One call of a layer or an operation of ``keras.ops`` in a model; shapes omit the batch.

    Attributes:
        layer: the called layer or operation.
        inputs: shapes of the inputs.
        outputs: shapes of the outputs.
        sources: the layers or operations that produce the inputs.
    """

    layer: layers.Layer
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sources: tuple[Any, ...]

    @property
    def is_sized(self) -> bool:
        """Return whether the lengths of all axes are known."""
        return None not in itertools.chain(*self.inputs, *self.outputs)

    @property
    def values_in(self) -> int:
        """The number of input values."""
        return sum(math.prod(shape) for shape in self.inputs)

    @property
    def values_out(self) -> int:
        """The number of output values."""
        return sum(math.prod(shape) for shape in self.outputs)


def calls_of(model: keras.Model) -> Iterator[Call]:
    """Yield every call of a layer or operation, in the order of the model."""
    for node in nodes_of(model):
        inputs, outputs = (tuple(tuple(each.shape[1:]) for each in side) for side in (node.inputs, node.outputs))
        yield Call(node.operation, inputs, outputs, node.sources)


def stock(layer: layers.Layer) -> type[layers.Layer]:
    """Return the Keras class that a layer of Podline replaces; for other layers their class."""
    return STOCK.get(type(layer), type(layer))


def total(amounts: list[int | None]) -> int | None:
    """Return the sum of the amounts; None if an amount is None."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def multiply_adds(call: Call) -> int | None:
    """Count the multiply-adds of one call for one example, or return None if they are unknown.

    As in papers, only convolutions, dense layers, attention and matrix products count. The number is unknown if an axis
    has variable length, or for layers with weights or products of a class that is not in the tables below.
    """
    layer = call.layer
    if isinstance(layer, keras.Model) and has_graph(layer):
        return total([multiply_adds(inner) for inner in calls_of(layer)])
    # Operations of keras.ops have no public class, so they are recognised by name.
    count = _MULTIPLY_ADDS.get(stock(layer)) or _OF_OPERATIONS.get(type(layer).__name__)
    if count is not None:
        return count(call) if call.is_sized else None
    return None if getattr(layer, "weights", ()) or type(layer).__name__ in _PRODUCTS else 0


def _per_output(call: Call) -> int:
    """Count multiply-adds for a kernel (…, inputs, outputs): each output value needs (…, inputs) products."""
    return call.values_out * math.prod(call.layer.kernel.shape[:-1])


def _per_input(call: Call) -> int:
    """Count multiply-adds for a transposed kernel (…, outputs, inputs): each input value needs (…, outputs)."""
    return call.values_in * math.prod(call.layer.kernel.shape[:-1])


def _depthwise(call: Call) -> int:
    return call.values_out * math.prod(call.layer.kernel.shape[:-2])


def _separable(call: Call) -> int:
    depthwise, pointwise = call.layer.depthwise_kernel.shape, call.layer.pointwise_kernel.shape
    positions = call.values_out // pointwise[-1]
    return positions * (math.prod(depthwise) + math.prod(pointwise))


def _einsum_dense(call: Call) -> int:
    equation = call.layer.equation
    kernel, output = equation.split(",")[1].split("->")
    summed = [size for letter, size in zip(kernel, call.layer.kernel.shape, strict=True) if letter not in output]
    return call.values_out * math.prod(summed)


def _attention(call: Call) -> int:
    """Count the four projections of multi-head attention, the scores, and the weighted sums of values."""
    layer = call.layer
    query, value = call.inputs[0], call.inputs[1]
    key = call.inputs[2] if len(call.inputs) > 2 else value
    queries, keys = math.prod(query[:-1]), math.prod(value[:-1])
    keyed, valued = layer.num_heads * layer.key_dim, layer.num_heads * layer.value_dim
    projections = queries * query[-1] * keyed + keys * (key[-1] * keyed + value[-1] * valued)
    return projections + queries * keys * (keyed + valued) + queries * valued * call.outputs[0][-1]


def _matmul(call: Call) -> int | None:
    return call.values_out * call.inputs[0][-1] if len(call.inputs) == 2 else None


def _dot_product_attention(call: Call) -> int:
    """Count the scores and the weighted sums for queries and keys (positions, heads, channels)."""
    return 2 * math.prod(call.inputs[0]) * call.inputs[1][0]


def _none(_call: Call) -> int:
    return 0


_CONVOLUTIONS: tuple[type[layers.Layer], ...] = (layers.Conv1D, layers.Conv2D, layers.Conv3D)
_DEPTHWISE: tuple[type[layers.Layer], ...] = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)
_SEPARABLE: tuple[type[layers.Layer], ...] = (layers.SeparableConv1D, layers.SeparableConv2D)
_TRANSPOSED: tuple[type[layers.Layer], ...] = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)
# Layers with one product per value, which papers ignore.
_WEIGHING: tuple[type[layers.Layer], ...] = (
    layers.BatchNormalization,
    layers.LayerNormalization,
    layers.GroupNormalization,
    layers.RMSNormalization,
    layers.Normalization,
    layers.PReLU,
    layers.Embedding,
    LayerScale,
)
_MULTIPLY_ADDS: dict[object, Callable[[Call], int | None]] = {
    **dict.fromkeys((*_CONVOLUTIONS, layers.Dense), _per_output),
    **dict.fromkeys(_TRANSPOSED, _per_input),
    **dict.fromkeys(_DEPTHWISE, _depthwise),
    **dict.fromkeys(_SEPARABLE, _separable),
    **dict.fromkeys(_WEIGHING, _none),
    layers.EinsumDense: _einsum_dense,
    layers.MultiHeadAttention: _attention,
}
_OF_OPERATIONS: dict[str, Callable[[Call], int | None]] = {
    "Matmul": _matmul,
    "DotProductAttention": _dot_product_attention,
}
# Products without weights, whose multiply-adds are not counted here.
_PRODUCTS = {"Dot", "Attention", "AdditiveAttention", "Einsum", "Tensordot"}
