"""Builds a Keras model for training: from uint8 images, with normalisation layers and seeded initial weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from podline.base.arrays import Array
from podline.base.errors import SettingsError
from podline.models.initial_values import own_values, set_initializers
from podline.models.keras_internals import fresh_names, has_graph
from podline.models.layer_checks import require_trainable
from podline.models.layer_copies import apply_copies, as_functional, kernels_of
from podline.models.normalisation import Pixels, pixels_of
from podline.models.precision import POLICIES, policy, policy_of_layers
from podline.models.variables import finish
from podline.recipes.parts import MODELS
from podline.recipes.published_weights import PUBLISHED
from podline.recipes.settings import ModelSettings, Precision


def build_model(
    settings: ModelSettings,
    image_shape: tuple[int, int, int],
    classes: int,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int = 0,
    precision: Precision = "float32",
) -> keras.Model:
    """Build the model of a recipe, with fresh weights.

    Args:
        settings: kind, width, depth and regularisation of the network.
        image_shape: (height, width, channels); for a network with published weights, a single channel is repeated to
            three.
        classes: number of logits.
        mean: mean per channel, of pixels in 0…255, from the training split, unless the settings have other constants.
        std: standard deviation per channel, of the same pixels; a constant channel (0) is centred, but not scaled.
        seed: seed of weights and dropout; see :func:`trainable_model`.
        precision: as in :func:`trainable_model`.

    Returns:
        A model from uint8 (n, height, width, channels) to float32 logits (n, classes). Its ``losses`` contain the L2
        terms.

    Raises:
        SettingsError: the model does not exist, cannot be built, or returns no logits; ``channels_first`` without a
            GPU, or for the model of a package; an invalid image shape or number of classes; the normalisation does not
            fit the channels; and errors of :func:`trainable_model`.
    """
    if len(image_shape) != 3 or min(image_shape) < 1 or classes < 1:
        raise SettingsError(
            f"got image shape {image_shape} and {classes} outputs, expected (height, width, channels), all at least 1, "
            "and at least 1 output"
        )
    _require_data_format(settings)
    grey = image_shape[-1] == 1 and settings.kind in PUBLISHED
    image_shape = (*image_shape[:2], 3) if grey else image_shape
    network = _made(settings, image_shape, classes)
    pixels = pixels_of(settings, Pixels(mean, std), image_shape[-1])
    own: Mapping[int, Array] = {}
    if settings.kind not in MODELS.shipped:
        own = own_values(settings.kind, network, _made(settings, image_shape, classes))
    l2 = settings.l2, settings.l2_layers
    return trainable_model(network, settings.kind, pixels, seed, *l2, precision, own, grey=grey)


def trainable_model(
    network: keras.Model,
    name: str,
    pixels: tuple[Sequence[float], Sequence[float]] | None,
    seed: int,
    l2: float = 0.0,
    l2_layers: tuple[str, ...] = (),
    precision: Precision = "float32",
    own: Mapping[int, Array] | None = None,
    *,
    grey: bool = False,
) -> keras.Model:
    """Return a trainable copy of a functional model with new weights.

    The copy takes uint8 images and normalises them. The layers of :mod:`podline.models.batch_layers` replace batch norm
    and dropout.

    Args:
        network: a model from normalised images (n, height, width, channels) to any outputs.
        name: name of the new model.
        pixels: mean and standard deviation per channel, of pixels in 0…255, from the training split; a constant channel
            (deviation 0) is centred, but not scaled. None if ``network`` itself normalises images.
        seed: seed of weights and dropout; a variable's random values depend only on this seed, the layer's name and
            the variable's index in the layer.
        l2: factor of the L2 term for each kernel of the layers ``l2_layers``.
        l2_layers: prefixes of layer names.
        precision: precision of all layers before the last layer with a kernel.
        own: index in ``network.weights`` → initial value, instead of the initializer's.
        grey: whether images have one channel, which is repeated for the network.

    Raises:
        SettingsError: the mean or deviation does not fit the images' channels; bfloat16 would be emulated; a prefix in
            ``l2_layers`` matches no layer with a kernel; an initializer takes no seed, and differs each time; or a
            layer is not built, not float32, or has a state that would differ between replicas.
    """
    *sides, channels = network.inputs[0].shape[1:]
    if pixels and not len(pixels[0]) == len(pixels[1]) == channels:
        raise SettingsError(
            f"got a mean of {len(pixels[0])} and a deviation of {len(pixels[1])} channels, expected {channels}, as the "
            "images have; give one of each per channel"
        )

    def front(image: Any) -> keras.KerasTensor:
        repeated: Any = [image] * channels
        image = keras.layers.Concatenate(name="repeat")(repeated) if grey else image
        return _normalised(image, *pixels) if pixels else image

    dtype = policy(precision)
    # Variables created in a StatelessScope get their values when the scope ends.
    with fresh_names(), policy_of_layers(POLICIES["float32"]), keras.StatelessScope() as scope:
        image: Any = keras.Input((*sides, 1 if grey else channels), dtype="uint8", name="image")
        outputs = apply_copies(network, image, front, dtype)
        model = keras.Model(image, keras.tree.map_structure(_float32, outputs), name=name)
        _regularise(model, l2, l2_layers)
        require_trainable(model)
        set_initializers(model, seed, own or {}, scope)
    finish(model)
    return model


def _require_data_format(settings: ModelSettings) -> None:
    if settings.data_format == "channels_last":
        return
    if settings.kind not in MODELS.shipped:
        raise SettingsError(
            f"data_format=channels_first vs model {settings.kind}: only Podline's own models support it; "
            "leave data_format out"
        )
    if not tf.config.list_logical_devices("GPU"):  # TensorFlow's CPU kernels support only channels_last
        devices = ", ".join(device.name for device in tf.config.list_logical_devices())
        raise SettingsError(
            f"data_format=channels_first needs a GPU, but the devices are {devices}; use data_format=channels_last"
        )


def _made(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Return the network that the model's function builds, a functional model from images to logits (n, classes)."""
    # Here, since layers that a module makes at its import would otherwise change the names of the first network.
    if isinstance(MODELS.load(settings.kind), keras.Model):
        raise SettingsError(
            f"{MODELS.title(settings.kind)} is a keras.Model, expected a function that returns "
            "one, from (image_shape, classes, settings)"
        )
    with fresh_names(), policy_of_layers(POLICIES["float32"]):
        network = MODELS.make(settings, image_shape, classes, settings)
    if not (isinstance(network, keras.Model) and has_graph(network)):
        raise SettingsError(
            f"model {settings.kind}: its function gives a {type(network).__name__}, expected keras.Model(inputs, "
            "outputs), a functional model from normalised images to logits; use a subclass of keras.Model as a layer "
            "of such a model"
        )
    _require_classifier(settings.kind, network, image_shape, classes)
    return network


def _require_classifier(kind: str, network: keras.Model, image_shape: tuple[int, int, int], classes: int) -> None:
    inputs = [tuple(tensor.shape) for tensor in network.inputs]
    if inputs != [(None, *image_shape)]:
        batch = inputs[0][0] if len(inputs) == 1 and inputs[0][1:] == image_shape else None
        remedy = f"leave batch_size={batch} out" if batch else f"use keras.Input({image_shape})"
        shapes = " and ".join(map(str, inputs))
        raise SettingsError(f"model {kind}: got inputs {shapes}, expected {(None, *image_shape)}; {remedy}")
    outputs = as_functional(network).output
    found: Any = keras.tree.map_structure(lambda tensor: tuple(tensor.shape), outputs)
    if isinstance(outputs, dict) or [tuple(each.shape) for each in network.outputs] != [(None, classes)]:
        raise SettingsError(
            f"model {kind}: got outputs {found}, expected one tensor of logits, {(None, classes)}; for other outputs "
            "add a kind of task"
        )


def _normalised(image: keras.KerasTensor, mean: Sequence[float], std: Sequence[float]) -> keras.KerasTensor:
    scale: Any = [1 / deviation if deviation else 1.0 for deviation in std]
    offset: Any = [-centre * factor for centre, factor in zip(mean, scale, strict=True)]
    return keras.layers.Rescaling(scale, offset, name="normalise")(image)


def _float32(output: keras.KerasTensor) -> keras.KerasTensor:
    return output if output.dtype == "float32" else keras.layers.Activation("linear", dtype="float32")(output)


def _regularise(model: keras.Model, l2: float, prefixes: tuple[str, ...]) -> None:
    names = [layer.name for layer in model.layers if kernels_of(layer)]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise SettingsError(f"l2_layers: no layer's name starts with {prefix!r}; the layers are {', '.join(names)}")
    for layer in model.layers:
        if layer.name.startswith(prefixes):
            for kernel in kernels_of(layer):
                kernel.regularizer = keras.regularizers.L2(l2)
