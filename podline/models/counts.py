"""Describes a built Keras model: layers, parameters, bytes and multiply-adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras
from keras import layers

from podline.documents.model_description import LayerDescription, ModelDescription
from podline.models.build import build_model
from podline.models.keras_internals import CallNode, LayerScale, has_graph, nodes_of
from podline.models.layer_copies import STOCK
from podline.recipes.settings import ModelSettings

_BYTES_PER_PARAMETER = 4  # float32


def describe(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> ModelDescription:
    """Build the model of ``settings``; return its layers, parameters and multiply-adds.

    Raises:
        SettingsError: see :func:`podline.models.build.build_model`.
    """
    channels = image_shape[-1]
    return described(build_model(settings, image_shape, classes, [0.0] * channels, [1.0] * channels))


def described(model: keras.Model) -> ModelDescription:
    """Return the layers, parameters and multiply-adds of a built model."""
    height, width, channels = model.inputs[0].shape[1:]
    answers = model.outputs[0].shape
    classes = answers[-1] if len(answers) == 2 else 0  # otherwise the outputs are maps
    calls: dict[int, list[CallNode]] = {}
    for call in nodes_of(model):
        calls.setdefault(id(call.operation), []).append(call)
    rows = [_row(of_layer) for of_layer in calls.values()]
    parameters = sum(row.parameters for row in rows)
    trainable = sum(row.trainable_parameters for row in rows)
    return ModelDescription(
        kind=model.name,
        image_shape=(height, width, channels),
        classes=classes,
        layers=tuple(rows),
        parameters=parameters,
        trainable_parameters=trainable,
        bytes=parameters * _BYTES_PER_PARAMETER,
        trainable_bytes=trainable * _BYTES_PER_PARAMETER,
        multiply_adds=sum(row.multiply_adds or 0 for row in rows),
    )


def forward_multiply_adds(model: keras.Model) -> int:
    """Return the multiply-adds of a forward pass for one example, without layers whose number is unknown."""
    return sum(_multiply_adds(call) or 0 for call in nodes_of(model))


def _row(calls: list[CallNode]) -> LayerDescription:
    """Describe a layer, or an operation of ``keras.ops`` (without weights), from its calls."""
    layer = calls[0].operation
    is_layer = isinstance(layer, layers.Layer)
    parameters = _parameters(layer.weights) if is_layer else 0
    return LayerDescription(
        name=layer.name,
        kind=_stock(layer).__name__,
        output_shape=tuple(calls[-1].outputs[0].shape[1:]),
        parameters=parameters,
        trainable_parameters=_parameters(layer.trainable_weights) if is_layer else 0,
        bytes=parameters * _BYTES_PER_PARAMETER,
        multiply_adds=_total(calls),
    )


def _parameters(variables: list[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)


def _stock(layer: layers.Layer) -> type[layers.Layer]:
    """Return the class of a layer; for a layer of Podline, the Keras class that it replaces."""
    return STOCK.get(type(layer), type(layer))


def _total(calls: Sequence[CallNode]) -> int | None:
    """Return the sum of the calls' multiply-adds; None if those of a call are unknown."""
    amounts = [_multiply_adds(call) for call in calls]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _multiply_adds(call: CallNode) -> int | None:
    """Count the multiply-adds of one call for one example, or return None if they are unknown.

    As in papers, only convolutions, dense layers, attention and matrix products count. The number is unknown if an axis
    has variable length, or for layers with weights or products of a class that is not in the tables below.
    """
    layer = call.operation
    if isinstance(layer, keras.Model) and has_graph(layer):
        return _total([*nodes_of(layer)])
    # Operations of keras.ops have no public class, so they are recognised by name.
    count = _MULTIPLY_ADDS.get(_stock(layer)) or _OF_OPERATIONS.get(type(layer).__name__)
    if count is not None:
        return None if any(None in each.shape[1:] for each in (*call.inputs, *call.outputs)) else count(call)
    return None if getattr(layer, "weights", ()) or type(layer).__name__ in _PRODUCTS else 0


def _values(tensors: Sequence[keras.KerasTensor]) -> int:
    """Return the number of values in the tensors of one example."""
    return sum(math.prod(tensor.shape[1:]) for tensor in tensors)


def _per_output(call: CallNode) -> int:
    """Count multiply-adds for a kernel (…, inputs, outputs): each output value needs (…, inputs) products."""
    return _values(call.outputs) * math.prod(call.operation.kernel.shape[:-1])


def _per_input(call: CallNode) -> int:
    """Count multiply-adds for a transposed kernel (…, outputs, inputs): each input value needs (…, outputs)."""
    return _values(call.inputs) * math.prod(call.operation.kernel.shape[:-1])


def _depthwise(call: CallNode) -> int:
    return _values(call.outputs) * math.prod(call.operation.kernel.shape[:-2])


def _separable(call: CallNode) -> int:
    depthwise, pointwise = call.operation.depthwise_kernel.shape, call.operation.pointwise_kernel.shape
    positions = _values(call.outputs) // pointwise[-1]
    return positions * (math.prod(depthwise) + math.prod(pointwise))


def _einsum_dense(call: CallNode) -> int:
    equation = call.operation.equation
    kernel, output = equation.split(",")[1].split("->")
    summed = [size for letter, size in zip(kernel, call.operation.kernel.shape, strict=True) if letter not in output]
    return _values(call.outputs) * math.prod(summed)


def _attention(call: CallNode) -> int:
    """Count the four projections of multi-head attention, the scores, and the weighted sums of values."""
    layer = call.operation
    query, value, *rest = (tensor.shape[1:] for tensor in call.inputs)
    key = rest[0] if rest else value
    queries, keys = math.prod(query[:-1]), math.prod(value[:-1])
    keyed, valued = layer.num_heads * layer.key_dim, layer.num_heads * layer.value_dim
    projections = queries * query[-1] * keyed + keys * (key[-1] * keyed + value[-1] * valued)
    return projections + queries * keys * (keyed + valued) + queries * valued * call.outputs[0].shape[-1]


def _matmul(call: CallNode) -> int | None:
    return _values(call.outputs) * call.inputs[0].shape[-1] if len(call.inputs) == 2 else None


def _dot_product_attention(call: CallNode) -> int:
    """Count the scores and the weighted sums for queries and keys (positions, heads, channels)."""
    return 2 * _values(call.inputs[:1]) * call.inputs[1].shape[1]


def _none(_call: CallNode) -> int:
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
_MULTIPLY_ADDS: dict[object, Callable[[CallNode], int | None]] = {
    **dict.fromkeys((*_CONVOLUTIONS, layers.Dense), _per_output),
    **dict.fromkeys(_TRANSPOSED, _per_input),
    **dict.fromkeys(_DEPTHWISE, _depthwise),
    **dict.fromkeys(_SEPARABLE, _separable),
    **dict.fromkeys(_WEIGHING, _none),
    layers.EinsumDense: _einsum_dense,
    layers.MultiHeadAttention: _attention,
}
_OF_OPERATIONS: dict[str, Callable[[CallNode], int | None]] = {
    "Matmul": _matmul,
    "DotProductAttention": _dot_product_attention,
}
# Products without weights, whose multiply-adds are not counted here.
_PRODUCTS = {"Dot", "Attention", "AdditiveAttention", "Einsum", "Tensordot"}
