"""The same model with stock Keras layers only, for whoever has no Podline."""

from __future__ import annotations

import keras

from podline.models.batch_layers import BatchDropout, FusedBatchNormalization


def exportable(model: keras.Model) -> keras.Model:
    """The same model with stock Keras layers only, so that plain Keras opens its ``.keras`` file and its JSON.

    Args:
        model: from :func:`build_model`.

    Returns:
        A copy with copies of the weights; it computes the same up to float32 rounding.
    """

    def stock(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, FusedBatchNormalization):
            return keras.layers.BatchNormalization.from_config(layer.get_config())
        if isinstance(layer, BatchDropout):
            return keras.layers.Dropout.from_config(layer.get_config())
        return layer.__class__.from_config(layer.get_config())

    copy = keras.models.clone_model(model, clone_function=stock)
    copy.set_weights(model.get_weights())
    return copy
