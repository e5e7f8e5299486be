"""A network as a Keras model: uint8 images in, logits out, the normalisation inside."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.network import (
    Add,
    BatchNorm,
    Concatenate,
    Convolution,
    Crop,
    Dense,
    DepthwiseConvolution,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    Layer,
    MaxPool,
    Normalise,
    Projection,
    Relu,
    Scale,
    Upsample,
)
from podline.models.networks import network_for
from podline.recipes.settings import ModelSettings, Recipe


def build_model(
    settings: ModelSettings,
    image_shape: tuple[int, int, int],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int = 0,
) -> keras.Model:
    """The model of a recipe, with fresh weights.

    Args:
        settings: which kind, how wide, how deep, what is regularised.
        image_shape: (height, width, channels).
        classes: number of logits.
        mean: per channel, of pixels in 0…255, from the training split.
        std: standard deviation per channel, likewise; a channel that never varies (0) is centred and not scaled.
        seed: of weights and dropout; a layer's draws depend on it and on the layer's name, and on nothing else in the
            process.

    Returns:
        A model from uint8 (n, height, width, channels) to float32 logits (n, classes). Its ``losses`` hold the L2
        terms.

    Raises:
        SettingsError: ``channels_first`` without a GPU; a mean or deviation per channel that does not fit the images; a
            prefix in ``l2_layers`` that fits no layer.
    """
    network = network_for(settings, image_shape, classes)
    require_device(settings.data_format, [device.name for device in tf.config.list_logical_devices()])
    if not len(mean) == len(std) == image_shape[-1]:
        raise SettingsError(
            f"mean of {len(mean)} and deviation of {len(std)} channels vs images of {image_shape[-1]}: "
            "give one of each per channel"
        )
    maker = LayerMaker(settings, mean, std, network.layers_named(settings.l2_layers), seed)
    image = keras.Input(image_shape, dtype="uint8", name="image")
    outputs: dict[str, Any] = {}
    logits: Any = image
    for layer, inputs in network.wired():
        read = [outputs[name] for name in inputs] or [image]
        logits = maker.apply(layer, read)
        outputs[layer.name] = logits
    return keras.Model(image, logits, name=settings.kind)


def class_model(recipe: Recipe, manifest: Manifest) -> keras.Model:
    """A classifier's model for a data set, with fresh weights; pixels are normalised by the training split.

    Raises:
        SettingsError: see :func:`build_model`.
    """
    (height, width, channels), split = manifest.image_shape, manifest.split("train")
    shape, classes = (height, width, channels), len(manifest.class_names)
    return build_model(recipe.model, shape, classes, split.mean, split.std, recipe.seed)


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


def require_device(data_format: str, devices: Sequence[str]) -> None:
    """Refuse a data format that no device here can compute; TensorFlow's CPU kernels know channels last only.

    Raises:
        SettingsError: ``channels_first`` and no GPU among the device names.
    """
    if data_format == "channels_first" and not any("GPU" in device for device in devices):
        raise SettingsError(
            f"data_format=channels_first needs a GPU; the devices here: {', '.join(devices)}; use channels_last"
        )


class LayerMaker:
    """Turns layers of the plan into Keras layers of one data format."""

    def __init__(
        self,
        settings: ModelSettings,
        mean: Sequence[float],
        std: Sequence[float],
        l2_names: frozenset[str],
        seed: int,
    ) -> None:
        self.seed = seed
        self.format = settings.data_format
        self.first = settings.data_format == "channels_first"
        self.l2, self.l2_names = settings.l2, l2_names
        self.scale: Any = [1 / deviation if deviation else 1.0 for deviation in std]
        self.offset: Any = [-centre * scale for centre, scale in zip(mean, self.scale, strict=True)]

    def apply(self, layer: Layer, read: list[Any]) -> Any:
        """The output of a layer for the outputs of the layers that it reads."""
        if isinstance(layer, Normalise):
            normalised = keras.layers.Rescaling(self.scale, self.offset, name=layer.name)(read[0])
            return keras.layers.Permute((3, 1, 2), name="channels_first")(normalised) if self.first else normalised
        if isinstance(layer, Flatten) and self.first:
            # Values are flattened in the order of height, width, channel whatever the format: weights stay portable.
            read = [keras.layers.Permute((2, 3, 1), name="channels_last")(read[0])]
        keras_layer = self._keras_layer(layer)
        return keras_layer(read if len(read) > 1 else read[0])

    def _keras_layer(self, layer: Layer) -> keras.layers.Layer:
        name, data_format = layer.name, self.format
        # Left to itself, Keras draws a layer's seed from a generator that all threads of the process share.
        seed = _seed_of_layer(self.seed, name)
        match layer:
            case Convolution():
                he_normal: Any = keras.initializers.HeNormal(seed)
                return keras.layers.Conv2D(
                    layer.filters,
                    layer.kernel,
                    layer.stride,
                    padding="same",
                    data_format=data_format,
                    use_bias=layer.bias,
                    kernel_initializer=he_normal,
                    kernel_regularizer=self._regulariser(layer),
                    name=name,
                )
            case DepthwiseConvolution():
                # He's rule by hand: Keras would take all channels for inputs of each filter.
                initializer: Any = keras.initializers.RandomNormal(stddev=math.sqrt(2) / layer.kernel, seed=seed)
                return keras.layers.DepthwiseConv2D(
                    layer.kernel,
                    layer.stride,
                    padding="same",
                    data_format=data_format,
                    use_bias=False,
                    depthwise_initializer=initializer,
                    depthwise_regularizer=self._regulariser(layer),
                    name=name,
                )
            case Projection():
                near_zero: Any = keras.initializers.RandomNormal(stddev=0.01, seed=seed)
                return keras.layers.Conv2D(
                    layer.filters,
                    1,
                    data_format=data_format,
                    kernel_initializer=near_zero,
                    kernel_regularizer=self._regulariser(layer),
                    dtype="float32",
                    name=name,
                )
            case BatchNorm():
                return FusedBatchNormalization(axis=1 if self.first else -1, momentum=0.9, name=name)
            case Relu():
                return keras.layers.ReLU(layer.limit, name=name)
            case Add():
                return keras.layers.Add(name=name)
            case Concatenate():
                return keras.layers.Concatenate(axis=1 if self.first else -1, name=name)
            case Crop():
                return keras.layers.Cropping2D(((0, layer.bottom), (0, layer.right)), data_format, name=name)
            case Upsample():
                return keras.layers.UpSampling2D(layer.factor, data_format, interpolation="bilinear", name=name)
            case MaxPool():
                return keras.layers.MaxPooling2D(layer.size, padding="same", data_format=data_format, name=name)
            case GlobalAveragePool():
                return keras.layers.GlobalAveragePooling2D(data_format=data_format, name=name)
            case GlobalMaxPool():
                return keras.layers.GlobalMaxPooling2D(data_format=data_format, name=name)
            case Scale():
                return keras.layers.Rescaling(layer.factor, name=name)
            case Flatten():
                return keras.layers.Flatten(data_format="channels_last", name=name)
            case Dropout():
                return BatchDropout(layer.rate, seed=seed, name=name)
            case Dense():
                glorot: Any = keras.initializers.GlorotUniform(seed)
                return keras.layers.Dense(
                    layer.units,
                    kernel_initializer=glorot,
                    kernel_regularizer=self._regulariser(layer),
                    dtype="float32",
                    name=name,
                )
            case _:
                raise TypeError(f"no Keras layer for {layer}")

    def _regulariser(self, layer: Layer) -> keras.regularizers.Regularizer | None:
        return keras.regularizers.L2(self.l2) if layer.name in self.l2_names else None


def _seed_of_layer(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little") % 2**31
