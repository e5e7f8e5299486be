"""Refuses layers that cannot be trained: not built, not float32, of differing state, or a last one of probabilities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.models.keras_internals import with_sublayers
from podline.models.layer_copies import STOCK

# TensorFlow's operations that compute probabilities, and operations after them that change no value.
_PROBABILITIES = ("Softmax", "Sigmoid")
_SAME_VALUES = ("Identity", "Cast", "Reshape", "Squeeze")


def require_trainable(model: keras.Model) -> None:
    """Check that a new model can be trained, on the replicas of the current strategy.

    Raises:
        SettingsError: a layer is not built, a trainable variable is not float32, or the state of a layer would differ
            between replicas, as the mean of a replica's examples does; the message names the layer.
    """
    _require_built(model)
    _require_float32(model)
    _require_shared_state(model)


def require_logits(outputs: tf.Tensor) -> None:
    """Refuse, while a step is traced, a model whose last operation is a softmax or a sigmoid.

    Raises:
        SettingsError: the model returns probabilities; the message names the layer.
    """
    if not tf.is_symbolic_tensor(outputs):
        return
    operation: Any = outputs.op
    while operation.type in _SAME_VALUES:
        operation = operation.inputs[0].op
    if operation.type in _PROBABILITIES:
        layer = re.sub(r"_\d+$", "", operation.name.split("/")[-2])  # a number follows the name of a layer's scope
        raise SettingsError(
            f"layer {layer}: the model's last operation is {operation.type.lower()}, expected logits, since the loss "
            "computes probabilities itself; leave out the last activation"
        )


def _require_built(model: keras.Model) -> None:
    """Check that all layers are built; a layer that the first step builds would not train, and could not be loaded."""
    unbuilt = [
        (layer, inner)
        for layer in model.layers
        if isinstance(layer, keras.layers.Layer)
        for inner in with_sublayers(layer)
        if not inner.built
    ]
    if unbuilt:
        _changed_by_step(model)
    for layer, inner in unbuilt:
        if inner.weights:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}): only the first step builds its layer {inner.name} "
                f"({type(inner).__name__}), too late to train {inner.name}; build {inner.name} in the build() of "
                f"{layer.name}, or remove compute_output_shape() from {layer.name}"
            )


def _require_float32(model: keras.Model) -> None:
    for layer in model.layers:
        for variable in layer.trainable_variables:
            if variable.dtype != "float32":
                raise SettingsError(
                    f"layer {layer.name}: {variable.path} is {variable.dtype}, expected float32; leave the layer's "
                    "dtype out, and let precision=bfloat16 of the recipe choose the type of the computation"
                )


def _require_shared_state(model: keras.Model) -> None:
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    stateful = [layer for layer in _leaves(model) if layer.non_trainable_variables and type(layer) not in STOCK]
    if replicas == 1 or not stateful:
        return
    changed = _changed_by_step(model)
    for layer in stateful:
        for variable in layer.non_trainable_variables:
            if id(variable) in changed:
                raise SettingsError(
                    f"layer {layer.name} ({type(layer).__name__}) updates {variable.path} from its replica's part of "
                    f"the batch, so {replicas} replicas would differ; train on one device, or add BatchNormalization "
                    "and Dropout directly to the model"
                )


def _changed_by_step(model: keras.Model) -> set[int]:
    """Return the ``id`` of each variable that a call of the model in training assigns."""
    changed: set[int] = set()

    def step() -> None:
        with keras.StatelessScope(initialize_variables=False) as scope:
            model(tf.zeros((1, *model.inputs[0].shape[1:]), tf.uint8), training=True)
            changed.update(id(each) for each in model.variables if scope.get_current_value(each) is not None)

    with tf.Graph().as_default():  # a new graph has no replicas
        tf.function(step, autograph=False).get_concrete_function()
    return changed


def _leaves(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a model, and in place of each nested model the layers of the nested model."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer)
        else:
            yield layer
