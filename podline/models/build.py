"""Builds a Keras model for training: uint8 images as input, normalisation inside, initial weights by the seed."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Keras has no public way to reset its numbering of names.
from keras.src.backend.common import global_state

from podline.documents.manifest import Manifest
from podline.entry_points import reason
from podline.errors import SettingsError
from podline.models.applications import PIXELS
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.precision import POLICIES, policy
from podline.recipes.parts import MODELS
from podline.recipes.settings import ModelSettings, Precision, Recipe

STOCK: dict[type[keras.layers.Layer], type[keras.layers.Layer]] = {
    FusedBatchNormalization: keras.layers.BatchNormalization,
    BatchDropout: keras.layers.Dropout,
}
"""Podline's own layers, and the layers of Keras that they replace."""
_OWN = {stock: own for own, stock in STOCK.items()}
_TO_FLOAT32 = {POLICIES["bfloat16"]: POLICIES["float32"]}
_VALUES = (tf.Tensor, tf.Variable, keras.Variable)
_SEED_STATE = "seed_generator_state"
Exchange = Callable[[keras.layers.Layer], keras.layers.Layer]
"""A function that converts a layer to another layer."""


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
        image_shape: (height, width, channels).
        classes: number of logits.
        mean: mean per channel, of pixels in 0…255, from the training split.
        std: standard deviation per channel, of the same pixels; a constant channel (0) is centred, but not scaled.
        seed: seed of weights and dropout; see :func:`trainable_model`.
        precision: as in :func:`trainable_model`.

    Returns:
        A model from uint8 (n, height, width, channels) to float32 logits (n, classes). Its ``losses`` contain the L2
        terms.

    Raises:
        SettingsError: the model does not exist, cannot be built, or returns no logits; ``channels_first`` without a
            GPU; an invalid image shape or number of classes; and errors of :func:`trainable_model`.
    """
    if len(image_shape) != 3 or min(image_shape) < 1 or classes < 1:
        raise SettingsError(
            f"image shape {image_shape}, {classes} outputs: a model needs (height, width, channels), all from 1, "
            "and 1 or more outputs"
        )
    _require_data_format(settings)
    network = _made(settings, image_shape, classes)
    shapes = [_shapes(network, side) for side in ("inputs", "outputs")]
    if shapes != [[(None, *image_shape)], [(None, classes)]]:
        raise SettingsError(
            f"model {settings.kind}: from {shapes[0]} to {shapes[1]} vs from {(None, *image_shape)} to "
            f"{(None, classes)}: its function must return a functional keras.Model from normalised images to logits"
        )
    _require_fixed_constants(settings, network, lambda: _made(settings, image_shape, classes))
    mean, std = PIXELS.get(settings.kind, (mean, std))
    return trainable_model(network, settings.kind, mean, std, seed, settings.l2, settings.l2_layers, precision)


def image_model(recipe: Recipe, manifest: Manifest, outputs: int) -> keras.Model:
    """Build a recipe's network for a data set, with fresh weights, and with normalisation by the training split.

    Raises:
        SettingsError: see :func:`build_model`.
    """
    (height, width, channels), split = manifest.image_shape, manifest.split("train")
    shape = height, width, channels
    return build_model(recipe.model, shape, outputs, split.mean, split.std, recipe.seed, recipe.precision)


def trainable_model(
    network: keras.Model,
    name: str,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
    l2: float = 0.0,
    l2_layers: tuple[str, ...] = (),
    precision: Precision = "float32",
) -> keras.Model:
    """Return a trainable copy of a functional model with new weights.

    It adds uint8 input and its normalisation. Batch norm and dropout become those of
    :mod:`podline.models.batch_layers`.

    Args:
        network: a model from normalised images (n, height, width, channels) to anything.
        name: name of the new model.
        mean: mean per channel, of pixels in 0…255, from the training split.
        std: standard deviation per channel, of the same pixels; a constant channel (0) is centred, but not scaled.
        seed: seed of weights and dropout; the random values of a variable depend only on this seed, the variable and
            the name of its layer.
        l2: factor of the L2 term for each kernel …
        l2_layers: … of the layers whose names start with one of these prefixes.
        precision: precision of all layers before the last one with a kernel.

    Raises:
        SettingsError: the mean or deviation does not fit the images' channels; bfloat16 would be emulated; a prefix in
            ``l2_layers`` matches no layer with a kernel; an initializer takes no seed; or several replicas would
        compute a
            layer differently from one.
    """
    _, *image_shape = network.inputs[0].shape
    if not len(mean) == len(std) == image_shape[-1]:
        raise SettingsError(
            f"mean of {len(mean)} and deviation of {len(std)} channels vs images of {image_shape[-1]}: "
            "give one of each per channel"
        )
    dtype = policy(precision)
    return _trainable(network, name, seed, lambda image: _normalised(image, mean, std), l2, l2_layers, dtype)


def untrained(model: keras.Model, seed: int) -> keras.Model:
    """Return a model of :func:`trainable_model` with its initial weights."""
    return _trainable(model, model.name, seed, lambda image: image)


def _trainable(
    network: keras.Model,
    name: str,
    seed: int,
    front: Callable[[Any], keras.KerasTensor],
    l2: float = 0.0,
    l2_layers: tuple[str, ...] = (),
    dtype: str = POLICIES["float32"],
) -> keras.Model:
    # Variables created in such a scope get their values at its end.
    with _fresh_names(), keras.StatelessScope():
        image = keras.Input(network.inputs[0].shape[1:], dtype="uint8", name="image")
        outputs = _computed(network, front(image), dtype)
        model = keras.Model(image, keras.tree.map_structure(_float32, outputs), name=name)
        model.trainable = True  # the recipe decides later which layers train
        _regularise(model, l2, l2_layers)
        _require_shared_state(model)
        _seed(model, seed)
    return model


def exportable(model: keras.Model) -> keras.Model:
    """Return the model with stock Keras layers in float32, so that plain Keras can load its ``.keras`` file and JSON.

    Returns:
        A copy with copies of the weights; it computes the same up to float32 rounding.
    """
    return _copied(model, _exchanging(STOCK, _TO_FLOAT32))


def in_float32(model: keras.Model) -> keras.Model:
    """Return the model with all layers in float32: itself, or a copy with copies of the weights."""
    if all(layer.dtype_policy.name not in _TO_FLOAT32 for layer in model.layers):
        return model
    return _copied(model, _exchanging({}, _TO_FLOAT32))


def _copied(model: keras.Model, exchange: Exchange) -> keras.Model:
    copy = _cloned(model, exchange)
    copy.set_weights(model.get_weights())
    return copy


def require_device(data_format: str, devices: Sequence[str]) -> None:
    """Refuse a data format that no device here supports; TensorFlow's CPU kernels only support channels last.

    Raises:
        SettingsError: ``channels_first`` without a GPU among the device names.
    """
    if data_format == "channels_first" and not any("GPU" in device for device in devices):
        raise SettingsError(
            f"data_format=channels_first needs a GPU; the devices here: {', '.join(devices)}; use channels_last"
        )


def _require_data_format(settings: ModelSettings) -> None:
    if settings.data_format == "channels_first" and settings.kind not in MODELS.shipped:
        raise SettingsError(f"data_format=channels_first vs model {settings.kind}: only Podline's own models know it")
    require_device(settings.data_format, [device.name for device in tf.config.list_logical_devices()])


def _made(settings: ModelSettings, image_shape: tuple[int, int, int], classes: int) -> keras.Model:
    with _fresh_names():
        return MODELS.make(settings, image_shape, classes, settings)


def _require_fixed_constants(settings: ModelSettings, network: keras.Model, again: Callable[[], keras.Model]) -> None:
    """Refuse a layer with random weights that is called on a constant, because its output is a random constant.

    Raises:
        SettingsError: the constants differ when the model is built again.
    """
    first = _constants(network)
    if first and not all(map(np.array_equal, first, _constants(again()))):
        raise SettingsError(
            f"model {settings.kind}: its constants differ each time it is built, as those of a layer that is called "
            "on a constant and never trains; call layers on tensors that depend on the image"
        )


def _constants(network: keras.Model) -> list[Any]:
    nodes = itertools.chain(*_graph(network)._nodes_by_depth.values())
    arguments = [keras.tree.flatten([node.arguments.args, node.arguments.kwargs]) for node in nodes]
    return [np.asarray(value) for value in itertools.chain(*arguments) if isinstance(value, _VALUES)]


def _graph(network: keras.Model) -> Any:
    return getattr(network, "_functional", network)  # a Sequential holds one


def _shapes(network: keras.Model, side: str) -> list[Any]:
    """Return the shapes of a functional model's inputs or outputs; for other objects their type."""
    tensors = getattr(network, side, None) if isinstance(network, keras.Model) else None
    return [f"a {type(network).__name__}"] if tensors is None else [tuple(tensor.shape) for tensor in tensors]


@contextlib.contextmanager
def _fresh_names() -> Iterator[None]:
    """Restart Keras's numbering of unnamed layers, independent of earlier models in the process."""
    names = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", names)


def _normalised(image: keras.KerasTensor, mean: Sequence[float], std: Sequence[float]) -> keras.KerasTensor:
    scale: Any = [1 / deviation if deviation else 1.0 for deviation in std]
    offset: Any = [-centre * factor for centre, factor in zip(mean, scale, strict=True)]
    return keras.layers.Rescaling(scale, offset, name="normalise")(image)


def _computed(network: keras.Model, image: keras.KerasTensor, dtype: str) -> Any:
    """Apply copies of a functional model's layers to an image, with Podline's layers instead of stock ones."""
    made: dict[int, Any] = {}
    last = max((place for place, layer in enumerate(network.layers) if _kernels(layer)), default=0)
    exact = {id(layer) for layer in network.layers[last:]}
    exchanges = {
        exactly: _exchanging(_OWN, {} if exactly else {POLICIES["float32"]: dtype}) for exactly in (True, False)
    }

    def copied(layer: keras.layers.Layer) -> Any:
        # Each layer is copied once, even if it is called twice.
        if id(layer) not in made:
            nested, exchange = isinstance(layer, keras.Model), exchanges[id(layer) in exact]
            made[id(layer)] = _cloned(layer, exchange) if nested else exchange(layer)
        return made[id(layer)]

    return _graph(network)._run_through_graph(image, copied)


def _cloned(model: keras.Model, exchange: Exchange) -> keras.Model:
    return keras.models.clone_model(model, clone_function=exchange, recursive=True)


def _exchanging(
    classes: dict[Any, Any], policies: dict[str, str]
) -> Callable[[keras.layers.Layer], keras.layers.Layer]:
    """Return a function that copies a layer without its weights, with another class and policy if needed."""

    def exchange(layer: keras.layers.Layer) -> Any:
        _require_loadable(type(layer), layer.name)
        try:
            # An operation that is no layer has no policy, and computes in the type of its input.
            exchanged = policies.get(getattr(getattr(layer, "dtype_policy", None), "name", ""))
            dtype = {"dtype": exchanged} if exchanged else {}
            return classes.get(type(layer), type(layer)).from_config(layer.get_config() | dtype)
        except Exception as error:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}) cannot be made from its get_config(): {reason(error)}"
            ) from error

    return exchange


def _require_loadable(kind: Any, name: str) -> None:
    """Refuse a layer whose class the evaluation could not load.

    Raises:
        SettingsError: the class is not registered.
    """
    if kind.__module__.split(".")[0] == "keras":
        return
    if keras.saving.get_registered_object(keras.saving.get_registered_name(kind)) is not kind:
        raise SettingsError(
            f"layer {name}: the class {kind.__name__} is not known to Keras by name; write "
            "@keras.saving.register_keras_serializable() before it"
        )


def _float32(output: keras.KerasTensor) -> keras.KerasTensor:
    return output if output.dtype == "float32" else keras.layers.Activation("linear", dtype="float32")(output)


def _kernels(layer: keras.layers.Layer) -> list[keras.Variable]:
    return [variable for variable in layer.trainable_variables if "kernel" in variable.name]


def _regularise(model: keras.Model, l2: float, prefixes: tuple[str, ...]) -> None:
    names = [layer.name for layer in model.layers if _kernels(layer)]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise SettingsError(f"l2_layers: no layer's name starts with {prefix!r}; the layers are {', '.join(names)}")
    for layer in model.layers:
        if layer.name.startswith(prefixes):
            for kernel in _kernels(layer):
                kernel.regularizer = keras.regularizers.L2(l2)


def _require_shared_state(model: keras.Model) -> None:
    """Refuse layers whose state would differ between replicas, like averages of a part of a batch, or random seeds.

    Raises:
        SettingsError: the model has such a layer.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1:
        return
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            _require_shared_state(layer)
        elif layer.non_trainable_variables and type(layer) not in STOCK:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}) keeps {layer.non_trainable_variables[0].path}, which "
                f"each of {replicas} replicas would update from its own part of a batch; add BatchNormalization and "
                "Dropout to the model directly, or train on one device"
            )


def _seed(model: keras.Model, seed: int) -> None:
    """Seed the initializer of each variable that has no values yet."""
    for layer in model.layers:
        states = [variable for variable in layer.variables if variable.name == _SEED_STATE]
        for number, state in enumerate(states):
            name = f"{layer.name}/{number}" if number else layer.name
            state._initializer = _begin(_seed_of(seed, name))
    for variable in model.variables:
        if variable.name != _SEED_STATE:
            name = variable.path.removesuffix("/kernel")
            variable._initializer = _drawing(variable, _seed_of(seed, name))


def _begin(seed: int) -> Callable[..., Any]:
    return lambda _shape, dtype=None, **_: keras.ops.convert_to_tensor([seed, 0], dtype=dtype)


def _drawing(variable: Any, seed: int) -> Callable[..., Any]:
    """Return a variable's initializer with a seed.

    Raises:
        SettingsError: the initializer takes no seed, and draws other numbers each time.
    """
    initializer = variable._initializer
    if not hasattr(initializer, "seed"):
        first, second = (np.asarray(initializer(variable.shape, dtype=variable.dtype)) for _ in range(2))
        if not np.array_equal(first, second):
            raise SettingsError(
                f"the initial values of {variable.path} differ each time; use an initializer of keras.initializers, "
                "which gets the recipe's seed"
            )
        return initializer

    def draw(*arguments: Any, **options: Any) -> Any:
        # Several variables may share an initializer.
        initializer.seed = seed
        return initializer(*arguments, **options)

    return draw


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little") % 2**31
