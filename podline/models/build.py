"""Builds a Keras model for training: uint8 images as input, normalisation inside, initial weights by the seed."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.arrays import Array
from podline.documents.manifest import Manifest
from podline.errors import SettingsError
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.keras_internals import (
    Initializer,
    fresh_names,
    has_graph,
    initializer_of,
    nodes_of,
    set_initializer,
    with_sublayers,
)
from podline.models.messages import cause
from podline.models.normalisation import Pixels, pixels_of
from podline.models.precision import POLICIES, policy
from podline.models.variables import copy_weights, finish, is_kernel
from podline.recipes.parts import MODELS
from podline.recipes.published_weights import PUBLISHED
from podline.recipes.settings import ModelSettings, Precision, Recipe

SEED_STATE = "seed_generator_state"
"""The name of the variable that holds the state of a random generator of Keras."""
STOCK: dict[type[keras.layers.Layer], type[keras.layers.Layer]] = {
    FusedBatchNormalization: keras.layers.BatchNormalization,
    BatchDropout: keras.layers.Dropout,
}
"""Podline's own layers, and the layers of Keras that they replace."""
_OWN = {stock: own for own, stock in STOCK.items()}
_TO_FLOAT32 = {POLICIES["bfloat16"]: POLICIES["float32"]}
_VALUES = (tf.Tensor, tf.Variable, keras.Variable)
_PLAIN = (int, float, str, tuple)
_LONGEST_CAUSE = 200  # characters of an error's cause
_FUNCTION = "write a function, with @keras.saving.register_keras_serializable() before it"
_REMEDIES = {
    "__init__": "let get_config return every argument of __init__, and __init__ take **kwargs for its base class",
    "instantiating a `Variable`": "make variables by self.add_weight(shape=…, dtype=…, initializer=…), not of a value",
    "lambda": _FUNCTION,
    "Could not locate": _FUNCTION,
    "Could not interpret": _FUNCTION,
}
"""Remedies for layers that cannot be made from their configs, by words of Keras's message."""
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
        image_shape: (height, width, channels); a network that has published weights gets one channel three times.
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
    grey = image_shape[-1] == 1 and settings.kind in PUBLISHED
    image_shape = (*image_shape[:2], 3) if grey else image_shape
    network = _made(settings, image_shape, classes)
    _require_classifier(settings.kind, network, image_shape, classes)
    pixels = pixels_of(settings, Pixels(mean, std), image_shape[-1])
    own: dict[int, Array] = {}
    if settings.kind not in MODELS.shipped:
        again = _made(settings, image_shape, classes)
        _require_fixed_constants(settings.kind, network, again)
        own = _own_values(settings.kind, network, again)
    l2 = settings.l2, settings.l2_layers
    return trainable_model(network, settings.kind, *pixels, seed, *l2, precision, own, grey=grey)


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
    own: Mapping[int, Array] | None = None,
    *,
    grey: bool = False,
) -> keras.Model:
    """Return a trainable copy of a functional model with new weights.

    It adds uint8 input and its normalisation. Batch norm and dropout become those of
    :mod:`podline.models.batch_layers`.

    Args:
        network: a model from normalised images (n, height, width, channels) to anything.
        name: name of the new model.
        mean: mean per channel, of pixels in 0…255, from the training split.
        std: standard deviation per channel, of the same pixels; a constant channel (0) is centred, but not scaled.
        seed: seed of weights and dropout; the random values of a variable depend only on this seed, the name of its
            layer and its place in the layer.
        l2: factor of the L2 term for each kernel …
        l2_layers: … of the layers whose names start with one of these prefixes.
        precision: precision of all layers before the last one with a kernel.
        own: values that weights begin with instead of those of their initializers, by place in ``network.weights``.
        grey: whether images have one channel, which is repeated for the network.

    Raises:
        SettingsError: the mean or deviation does not fit the images' channels; bfloat16 would be emulated; a prefix in
            ``l2_layers`` matches no layer with a kernel; an initializer takes no seed; or several replicas would
            compute a layer differently from one.
    """
    _, *image_shape = network.inputs[0].shape
    if not len(mean) == len(std) == image_shape[-1]:
        raise SettingsError(
            f"mean of {len(mean)} and deviation of {len(std)} channels vs images of {image_shape[-1]}: "
            "give one of each per channel"
        )

    def front(image: Any) -> keras.KerasTensor:
        channels: Any = [image] * len(mean)
        return _normalised(keras.layers.Concatenate(name="repeat")(channels) if grey else image, mean, std)

    dtype = policy(precision)
    return _trainable(network, name, seed, front, l2, l2_layers, dtype, own or {}, channels=1 if grey else len(mean))


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
    own: Mapping[int, Array] | None = None,
    channels: int | None = None,
) -> keras.Model:
    # Variables created in such a scope get their values at its end.
    with fresh_names(), policy_of_layers(POLICIES["float32"]), keras.StatelessScope() as scope:
        *sides, own_channels = network.inputs[0].shape[1:]
        image: Any = keras.Input((*sides, channels or own_channels), dtype="uint8", name="image")
        outputs = _computed(network, image, front, dtype)
        model = keras.Model(image, keras.tree.map_structure(_float32, outputs), name=name)
        _regularise(model, l2, l2_layers)
        _require_built(model)
        _require_float32(model)
        _require_shared_state(model)
        _seed(model, seed)
        _begin_with(model, own or {}, scope)
    finish(model)
    return model


def exportable(model: keras.Model) -> keras.Model:
    """Return the model with stock Keras layers in float32, so that plain Keras can load its ``.keras`` file and JSON.

    Returns:
        A copy with copies of the weights; it computes the same up to float32 rounding.
    """
    return _copied(model, _exchanging(STOCK, _TO_FLOAT32))


def in_float32(model: keras.Model) -> keras.Model:
    """Return the model with all layers in float32: itself, or a copy with copies of the weights."""
    if all(layer.dtype_policy.name not in _TO_FLOAT32 for layer in with_sublayers(model)):
        return model
    return _copied(model, _exchanging({}, _TO_FLOAT32))


def copied(model: keras.Model) -> keras.Model:
    """Return a copy of a model in the same precision, with copies of the weights."""
    return _copied(model, _exchanging({}, {}))


def _copied(model: keras.Model, exchange: Exchange) -> keras.Model:
    with fresh_names(), policy_of_layers(POLICIES["float32"]):
        copy = keras.models.clone_model(model, clone_function=exchange, call_function=_called, recursive=True)
    copy_weights(model, copy)
    return copy


def _called(layer: Any, *arguments: Any, **options: Any) -> Any:
    # Layers that it makes when it is built take the policy of the process.
    try:
        with policy_of_layers(_policy_of(layer)):
            return layer(*arguments, **options)
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(
            f"layer {layer.name} ({type(layer).__name__}) cannot be built or called: {_last(error)}"
        ) from error


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
    with fresh_names(), policy_of_layers(POLICIES["float32"]):
        return MODELS.make(settings, image_shape, classes, settings)


def _require_classifier(kind: str, network: Any, image_shape: tuple[int, int, int], classes: int) -> None:
    """Refuse what is no functional model from images to one output with a value for each class.

    Raises:
        SettingsError: it has no graph, or other inputs or outputs.
    """
    expected = "keras.Model(inputs, outputs), a functional model from normalised images to logits"
    if not isinstance(network, keras.Model):
        raise SettingsError(f"model {kind}: its function gives a {type(network).__name__}, expected {expected}")
    if not has_graph(network):
        raise SettingsError(
            f"model {kind}: its function gives a {type(network).__name__} without a graph, expected {expected}; a "
            "subclass of keras.Model can be one of its layers"
        )
    inputs = [tuple(tensor.shape) for tensor in network.inputs]
    if inputs != [(None, *image_shape)]:
        batch = inputs[0][0] if len(inputs) == 1 and inputs[0][1:] == image_shape else None
        remedy = f"leave batch_size={batch} out" if batch else f"take keras.Input({image_shape})"
        raise SettingsError(f"model {kind}: got inputs {_listed(inputs)}, expected {(None, *image_shape)}; {remedy}")
    outputs = _functional(network).output
    found: Any = keras.tree.map_structure(lambda tensor: tuple(tensor.shape), outputs)
    if isinstance(outputs, dict) or [tuple(each.shape) for each in network.outputs] != [(None, classes)]:
        raise SettingsError(
            f"model {kind}: got outputs {found}, expected one tensor of logits, {(None, classes)}; for other outputs "
            "add a kind of task"
        )


def _functional(network: Any) -> Any:
    """Return a model as a functional one of its own layers, not compiled."""
    if isinstance(network, keras.Sequential):
        return keras.Model(network.inputs[0], network.outputs[0])
    return keras.Model(network.input, network.output)


def _listed(shapes: Sequence[tuple[Any, ...]]) -> str:
    return " and ".join(map(str, shapes))


@contextlib.contextmanager
def policy_of_layers(name: str) -> Iterator[None]:
    """Make a policy that of all layers that name none."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _require_fixed_constants(kind: str, network: keras.Model, again: keras.Model) -> None:
    """Refuse a layer with random weights that is called on a constant, because its output is a random constant.

    Raises:
        SettingsError: the constants differ when the model is built again.
    """
    if not all(map(np.array_equal, _constants(network), _constants(again))):
        raise SettingsError(
            f"model {kind}: its constants differ each time it is built, as those of a layer that is called on a "
            "constant and never trains; call layers on tensors that depend on the image"
        )


def _constants(network: keras.Model) -> list[Any]:
    arguments = [value for node in nodes_of(network) for value in node.arguments]
    return [np.asarray(value) for value in arguments if isinstance(value, _VALUES)]


def _own_values(kind: str, network: keras.Model, again: keras.Model) -> dict[int, Array]:
    """Return the values that a model's function has set itself, as by ``adapt`` or ``load_weights``, by place.

    A variable's value was set if its initializer gives another one. What a random initializer gave is not known any
    more: then a value was set if the model has it each time it is built, and no seed of the model gives it.

    Raises:
        SettingsError: the function sets other values each time.
    """
    values: dict[int, Array] = {}
    with fresh_names(), policy_of_layers(POLICIES["float32"]), keras.StatelessScope(initialize_variables=False):
        copy = _exchanging({}, {})
        fresh = keras.models.clone_model(
            _functional(network), clone_function=copy, call_function=_called, recursive=True
        )
        _require_same_sharing(kind, network, fresh)
        sides = (_functional(network), _functional(again), fresh)
        for place, (variable, other, blank) in enumerate(zip(*(side.weights for side in sides), strict=True)):
            value, initializer = np.asarray(variable), initializer_of(blank)
            alike = np.array_equal(value, np.asarray(other))
            initial, redrawn = (_drawn(initializer, blank) for _ in range(2))
            unknown = hasattr(initializer, "seed") or not np.array_equal(initial, redrawn)
            if np.array_equal(value, initial) or (unknown and not alike):
                continue
            if not alike:
                raise SettingsError(
                    f"model {kind}: {variable.path} has other values each time the model is built; if its function "
                    "draws random numbers or random images, give them a seed"
                )
            values[place] = value
    return values


def _require_same_sharing(kind: str, network: keras.Model, copy: keras.Model) -> None:
    """Refuse layers that share a weight in a way that their ``get_config`` loses, as one that was given another layer.

    Raises:
        SettingsError: the copy has another number of weights.
    """
    if len(network.weights) == len(copy.weights):
        return
    owners: dict[int, str] = {}
    for layer in network.layers:
        for variable in layer.weights:
            if (owner := owners.setdefault(id(variable), layer.name)) != layer.name:
                raise SettingsError(
                    f"model {kind}: layers {owner} and {layer.name} share {variable.path}, but those made from their "
                    "get_config() do not; let one layer of your own compute both"
                )
    raise SettingsError(
        f"model {kind}: it has {len(network.weights)} weights, but layers made from their get_config() have "
        f"{len(copy.weights)}; let get_config return every argument of __init__"
    )


def _normalised(image: keras.KerasTensor, mean: Sequence[float], std: Sequence[float]) -> keras.KerasTensor:
    scale: Any = [1 / deviation if deviation else 1.0 for deviation in std]
    offset: Any = [-centre * factor for centre, factor in zip(mean, scale, strict=True)]
    return keras.layers.Rescaling(scale, offset, name="normalise")(image)


def _computed(
    network: keras.Model, image: keras.KerasTensor, front: Callable[[Any], keras.KerasTensor], dtype: str
) -> Any:
    """Apply a front and copies of a functional model's layers to an image, with Podline's layers instead of stock ones.

    A copy trains like its original: what the model has frozen stays frozen.
    """
    last = max((place for place, layer in enumerate(network.layers) if _kernels(layer)), default=0)
    exact = {id(inner) for layer in network.layers[last:] for inner in with_sublayers(layer)}
    exchanges = {
        exactly: _exchanging(_OWN, {} if exactly else {POLICIES["float32"]: dtype}) for exactly in (True, False)
    }
    copies: list[tuple[keras.layers.Layer, keras.layers.Layer]] = []

    def copied(layer: keras.layers.Layer) -> keras.layers.Layer:
        copies.append((layer, exchanges[id(layer) in exact](layer)))
        return copies[-1][1]

    normalised = front(image)

    def call(layer: Any, *arguments: Any, **options: Any) -> Any:
        given: Any = keras.tree.map_structure(
            lambda value: normalised if value is image else value, (arguments, options)
        )
        return _called(layer, *given[0], **given[1])

    functional = _functional(network)
    clone: Any = keras.models.clone_model(
        functional,
        keras.tree.map_structure(lambda _: image, functional.input),
        clone_function=copied,
        call_function=call,
        recursive=True,
    )
    for original, copy in copies:
        if isinstance(original, keras.layers.Layer):  # not an operation of keras.ops
            _require_whole_config(original, copy)
            for inner, inner_copy in zip(with_sublayers(original), with_sublayers(copy), strict=True):
                inner_copy.trainable = inner.trainable
    return clone.output


def _require_whole_config(layer: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Refuse a layer whose ``get_config`` leaves an argument out, so that its copy is another layer.

    Raises:
        SettingsError: the copy has other weights, or other values of arguments that a layer keeps under their names.
    """
    found = _arguments(copy)
    for name, value in _arguments(layer).items():
        if found.get(name, value) != value:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}): got {name}={found[name]} of a copy by its get_config(), "
                f"expected {value}; let get_config return every argument of __init__"
            )


def _arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    """Return the plain attributes of a layer that have the name of an argument, and the shapes of its weights."""
    names = inspect.signature(type(layer).__init__).parameters.keys() & vars(layer).keys()
    plain = {name: vars(layer)[name] for name in sorted(names) if isinstance(vars(layer)[name], _PLAIN)}
    return plain | {"weights": [tuple(variable.shape) for variable in layer.weights]}


def _exchanging(
    classes: dict[Any, Any], policies: dict[str, str]
) -> Callable[[keras.layers.Layer], keras.layers.Layer]:
    """Return a function that copies a layer without its weights, with another class and policy if needed."""

    def exchange(layer: keras.layers.Layer) -> Any:
        _require_loadable(type(layer), layer.name)
        try:
            # An operation that is no layer has no policy: its dtype, as that of a cast, is an argument.
            config = layer.get_config()
            if isinstance(layer, keras.layers.Layer):
                config = _with_policies(config, policies)
            policy = _policy_of(layer)
            # Layers that it makes take the policy of the process.
            with policy_of_layers(policies.get(policy, policy)):
                return classes.get(type(layer), type(layer)).from_config(config)
        except Exception as error:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}) cannot be made from its get_config(): {_last(error)}"
            ) from error

    return exchange


def _policy_of(layer: Any) -> str:
    """Return the name of a layer's policy, if it is one of a precision; for others and for operations float32."""
    name = getattr(getattr(layer, "dtype_policy", None), "name", "")
    return name if name in POLICIES.values() else POLICIES["float32"]


def _with_policies(config: Any, policies: dict[str, str]) -> Any:
    """Return a layer's config with other policies, also in the configs of layers that it was given."""
    if isinstance(config, list):
        return [_with_policies(each, policies) for each in config]
    if not isinstance(config, dict) or config.get("class_name") == "InputLayer":
        return config
    changed = {name: _with_policies(value, policies) for name, value in config.items()}
    if isinstance(dtype := config.get("dtype"), (str, dict)):
        name = dtype if isinstance(dtype, str) else dtype["config"].get("name", "")
        changed["dtype"] = policies.get(name, dtype)
    return changed


def _require_loadable(kind: Any, name: str) -> None:
    """Refuse a layer whose class the evaluation could not load.

    Raises:
        SettingsError: the class is not registered.
    """
    if kind.__module__.split(".")[0] == "keras":
        return
    if keras.saving.get_registered_object(keras.saving.get_registered_name(kind)) is not kind:
        raise SettingsError(
            f"layer {name}: the class {kind.__module__}.{kind.__name__} is not known to Keras by name; write "
            "@keras.saving.register_keras_serializable() before it, or for a class of a library "
            f"keras.saving.register_keras_serializable()({kind.__name__}) in your package"
        )


def _last(error: Exception) -> str:
    """Return the first sentence of an error's cause, and the remedy."""
    sentence = re.split(r"\.\s|: \{", cause(error))[0]
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in str(error)), "")
    return f"{type(error).__name__}: {sentence[:_LONGEST_CAUSE]}{remedy and f'; {remedy}'}"


def _float32(output: keras.KerasTensor) -> keras.KerasTensor:
    return output if output.dtype == "float32" else keras.layers.Activation("linear", dtype="float32")(output)


def _kernels(layer: keras.layers.Layer) -> list[keras.Variable]:
    return [variable for variable in layer.trainable_variables if is_kernel(variable)]


def _regularise(model: keras.Model, l2: float, prefixes: tuple[str, ...]) -> None:
    names = [layer.name for layer in model.layers if _kernels(layer)]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise SettingsError(f"l2_layers: no layer's name starts with {prefix!r}; the layers are {', '.join(names)}")
    for layer in model.layers:
        if layer.name.startswith(prefixes):
            for kernel in _kernels(layer):
                kernel.regularizer = keras.regularizers.L2(l2)


def _require_built(model: keras.Model) -> None:
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


def _require_float32(model: keras.Model) -> None:
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


def _require_shared_state(model: keras.Model) -> None:
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


def _seed(model: keras.Model, seed: int) -> None:
    """Seed the initializer of each variable that has no values yet, by its layer's name and its place in the layer."""
    for layer in model.layers:
        states = [variable for variable in layer.variables if variable.name == SEED_STATE]
        for members, seeded in ((states, _begin), (layer.weights, _drawing)):
            for number, variable in enumerate(members):
                name = f"{layer.name}/{number}" if number else layer.name
                set_initializer(variable, seeded(variable, _seed_of(seed, name)))


def _begin(_state: Any, seed: int) -> Initializer:
    return lambda _shape, dtype=None, **_: keras.ops.convert_to_tensor([seed, 0], dtype=dtype)


def _drawing(variable: Any, seed: int) -> Initializer:
    """Return a variable's initializer with a seed.

    Raises:
        SettingsError: the initializer takes no seed, and draws other numbers each time.
    """
    initializer: Any = initializer_of(variable)
    if not hasattr(initializer, "seed"):
        first, second = (_drawn(initializer, variable) for _ in range(2))
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


def _drawn(initializer: Initializer, variable: Any) -> Array:
    return np.asarray(initializer(variable.shape, dtype=variable.dtype))


def _begin_with(model: keras.Model, own: Mapping[int, Array], scope: keras.StatelessScope) -> None:
    """Let variables begin with the values that were assigned in a layer's ``build``, or that the model had before."""
    for place, variable in enumerate(model.weights):
        value = scope.get_current_value(variable)
        value = own.get(place) if value is None else value
        if value is not None:
            set_initializer(variable, _constant(value))


def _constant(value: Any) -> Initializer:
    return lambda _shape, dtype=None, **_: keras.ops.convert_to_tensor(value, dtype=dtype)


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little") % 2**31
