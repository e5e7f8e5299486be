"""What a built Keras model costs: parameters and multiply-adds, layer by layer. Needs TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras

from podline.models.build import build_model
from podline.models.counts import BYTES_PER_PARAMETER, LayerDescription, ModelDescription
from podline.models.stock import exportable
from podline.recipes.settings import Recipe

Shape = tuple[int, ...]


def describe_built(recipe: Recipe, image_shape: tuple[int, int, int], classes: int) -> ModelDescription:
    """A classifier's model, which is built for it.

    Raises:
        SettingsError: see :func:`podline.models.build.build_model`.
    """
    channels = image_shape[-1]
    model = build_model(recipe.model, image_shape, classes, [0.0] * channels, [1.0] * channels, recipe.seed)
    return describe_keras(recipe.model.kind, exportable(model))


def describe_architecture(kind: str, architecture: str) -> ModelDescription:
    """A trained model, by its ``architecture.json``; the package that it came from is not needed."""
    model: Any = keras.models.model_from_json(architecture)
    return describe_keras(kind, model)


def describe_keras(kind: str, model: keras.Model) -> ModelDescription:
    """Any functional model from images to logits.

    Multiply-adds are counted as papers do: of convolutions, dense layers and attention; norms, activations and pools
    have none. A layer of another kind with weights is counted with its parameters alone.
    """
    layers = tuple(_described(layer) for layer in model.layers if not isinstance(layer, keras.layers.InputLayer))
    parameters, trainable = (
        sum(getattr(layer, name) for layer in layers) for name in ("parameters", "trainable_parameters")
    )
    height, width, channels = model.input_shape[1:]
    return ModelDescription(
        kind=kind,
        image_shape=(height, width, channels),
        classes=model.output_shape[-1],
        layers=layers,
        parameters=parameters,
        trainable_parameters=trainable,
        bytes=parameters * BYTES_PER_PARAMETER,
        trainable_bytes=trainable * BYTES_PER_PARAMETER,
        multiply_adds=sum(layer.multiply_adds for layer in layers),
        micronet=None,
    )


def _described(layer: Any) -> LayerDescription:
    # Counters of random generators are variables as well, and no parameters.
    trainable = sum(math.prod(variable.shape) for variable in layer.trainable_variables)
    fixed = sum(math.prod(variable.shape) for variable in layer.non_trainable_weights)
    return LayerDescription(
        name=layer.name,
        kind=type(layer).__name__,
        output_shape=tuple(size or 1 for size in _shape(layer.output)),
        parameters=trainable + fixed,
        trainable_parameters=trainable,
        bytes=(trainable + fixed) * BYTES_PER_PARAMETER,
        multiply_adds=_multiply_adds(layer),
    )


def _shape(tensor: Any) -> Shape:
    """Of a layer's first output, or input, without the batch."""
    return tuple(keras.tree.flatten(tensor)[0].shape[1:])


def _multiply_adds(layer: Any) -> int:
    for kinds, count in _COUNTS:
        if isinstance(layer, kinds):
            return count(layer)
    return 0


def _places(layer: Any) -> int:
    """Where the kernel is applied: all places of the output but the channels."""
    shape = _shape(layer.output)
    return math.prod(shape[:-1] if layer.data_format == "channels_last" else shape[1:])


def _convolution(layer: Any) -> int:
    return _places(layer) * math.prod(layer.kernel.shape)


def _separable(layer: Any) -> int:
    kernels = math.prod(layer.depthwise_kernel.shape) + math.prod(layer.pointwise_kernel.shape)
    return _places(layer) * kernels


def _transposed(layer: Any) -> int:
    shape = _shape(layer.input)
    return math.prod(shape[:-1] if layer.data_format == "channels_last" else shape[1:]) * math.prod(layer.kernel.shape)


def _dense(layer: Any) -> int:
    return math.prod(_shape(layer.input)[:-1]) * math.prod(layer.kernel.shape)


def _einsum(layer: Any) -> int:
    """Each number of the kernel for each place of the input that it is not summed over."""
    return math.prod(_shape(layer.input)) * math.prod(layer.kernel.shape) // _contracted(layer)


def _contracted(layer: Any) -> int:
    """The sizes of the axes that input and kernel are both summed over."""
    inputs, output = layer.equation.split("->")
    _, kernel = inputs.split(",")
    return math.prod(size for axis, size in zip(kernel, layer.kernel.shape, strict=True) if axis not in output)


def _attention(layer: Any) -> int:
    """The four projections, the scores of all pairs, and the sums that they weigh."""
    tokens, width = _shape(layer.input)[-2:]
    heads, keys, values = layer.num_heads, layer.key_dim, layer.value_dim or layer.key_dim
    out = _shape(layer.output)[-1]
    projections = tokens * heads * (width * (2 * keys + values) + values * out)
    return projections + tokens**2 * heads * (keys + values)


_COUNTS: tuple[tuple[tuple[type, ...], Callable[[Any], int]], ...] = (
    ((keras.layers.SeparableConv1D, keras.layers.SeparableConv2D), _separable),
    ((keras.layers.Conv2DTranspose, keras.layers.Conv1DTranspose), _transposed),
    ((keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D), _convolution),
    ((keras.layers.Conv1D, keras.layers.Conv2D), _convolution),
    ((keras.layers.EinsumDense,), _einsum),
    ((keras.layers.Dense,), _dense),
    ((keras.layers.MultiHeadAttention,), _attention),
)
