"""Refuses layers that could not be trained: unbuilt, of other types, or with a state of their own on each replica."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.models.keras_internals import (
    with_sublayers,
)
from podline.models.layer_copies import STOCK


def require_built(model: keras.Model) -> None:
    """Refuse layers that the first step would build: they would not train, and could not be loaded.

    Raises:
        SettingsError: the model has such a layer.
    """
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
                f"layer {layer.name} ({type(layer).__name__}): only its first step builds {inner.name} "
                f"({type(inner).__name__}), too late to train it; build it in the layer's build(), or leave its "
                "compute_output_shape() out"
            )


def require_float32(model: keras.Model) -> None:
    """Refuse trained variables of other types, for which loss and optimizer are not made.

    Raises:
        SettingsError: the model has such a variable.
    """
    for layer in model.layers:
        for variable in layer.trainable_variables:
            if variable.dtype != "float32":
                raise SettingsError(
                    f"layer {layer.name}: {variable.path} is {variable.dtype}, expected float32; leave the layer's "
                    "dtype out, and let precision=bfloat16 of the recipe choose the type of the computation"
                )


def require_shared_state(model: keras.Model) -> None:
    """Refuse layers whose state would differ between replicas, like averages of a part of a batch, or random seeds.

    Raises:
        SettingsError: the model has such a layer.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    stateful = [layer for layer in _leaves(model) if layer.non_trainable_variables and type(layer) not in STOCK]
    if replicas == 1 or not stateful:
        return
    changed = _changed_by_step(model)
    for layer in stateful:
        for variable in layer.non_trainable_variables:
            if id(variable) in changed:
                raise SettingsError(
                    f"layer {layer.name} ({type(layer).__name__}) keeps {variable.path}, which each of {replicas} "
                    "replicas would update from its own part of a batch; add BatchNormalization and Dropout to the "
                    "model directly, or train on one device"
                )


def _changed_by_step(model: keras.Model) -> set[int]:
    """Return the identities of the variables that a call in training assigns to."""
    changed: set[int] = set()

    def step() -> None:
        with keras.StatelessScope(initialize_variables=False) as scope:
            model(tf.zeros((1, *model.inputs[0].shape[1:]), tf.uint8), training=True)
            changed.update(id(each) for each in model.variables if scope.get_current_value(each) is not None)

    with tf.Graph().as_default():  # it knows no replicas
        tf.function(step, autograph=False).get_concrete_function()
    return changed


def _leaves(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a model, and of models in it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer)
        else:
            yield layer
