"""Describes a built Keras model: layers, parameters, bytes and multiply-adds."""

from __future__ import annotations

import math

import keras
from keras import layers

from podline.documents.model_description import LayerDescription, ModelDescription
from podline.models.build import build_model
from podline.models.calls import Call, calls_of, multiply_adds, stock, total
from podline.recipes.settings import ModelSettings

BYTES_PER_PARAMETER = 4  # float32


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
    calls: dict[int, list[Call]] = {}
    for call in calls_of(model):
        calls.setdefault(id(call.layer), []).append(call)
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
        bytes=parameters * BYTES_PER_PARAMETER,
        trainable_bytes=trainable * BYTES_PER_PARAMETER,
        multiply_adds=sum(row.multiply_adds or 0 for row in rows),
    )


def forward_multiply_adds(model: keras.Model) -> int:
    """Return the multiply-adds of a forward pass for one example, without layers whose number is unknown."""
    return sum(multiply_adds(call) or 0 for call in calls_of(model))


def _row(calls: list[Call]) -> LayerDescription:
    """Describe a layer, or an operation of ``keras.ops``, from its calls; an operation has no weights."""
    layer = calls[0].layer
    is_layer = isinstance(layer, layers.Layer)
    parameters = _values(layer.weights) if is_layer else 0
    return LayerDescription(
        name=layer.name,
        kind=stock(layer).__name__,
        output_shape=calls[-1].outputs[0],
        parameters=parameters,
        trainable_parameters=_values(layer.trainable_weights) if is_layer else 0,
        bytes=parameters * BYTES_PER_PARAMETER,
        multiply_adds=total([multiply_adds(call) for call in calls]),
    )


def _values(variables: list[keras.Variable]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
