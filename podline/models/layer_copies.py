"""Copies of a model by the configs of its layers: with Podline's layers or stock ones, in another precision."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import keras

from podline.base.errors import SettingsError
from podline.models.batch_layers import BatchDropout, FusedBatchNormalization
from podline.models.keras_internals import fresh_names, with_sublayers
from podline.models.messages import cause
from podline.models.precision import POLICIES, policy_of_layers
from podline.models.variables import copy_weights, kernels_of

STOCK: dict[type[keras.layers.Layer], type[keras.layers.Layer]] = {
    FusedBatchNormalization: keras.layers.BatchNormalization,
    BatchDropout: keras.layers.Dropout,
}
"""Podline's own layers, and the layers of Keras that they replace."""
_OWN = {stock: own for own, stock in STOCK.items()}
_TO_FLOAT32 = {POLICIES["bfloat16"]: POLICIES["float32"]}
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


def exportable(model: keras.Model) -> keras.Model:
    """Return the model with stock Keras layers in float32, so that plain Keras can load its ``.keras`` file and JSON.

    Returns:
        A copy with copies of the weights; it computes the same up to float32 rounding.
    """
    return _copied(model, exchanging(STOCK, _TO_FLOAT32))


def in_float32(model: keras.Model) -> keras.Model:
    """Return the model with all layers in float32: itself, or a copy with copies of the weights."""
    if all(layer.dtype_policy.name not in _TO_FLOAT32 for layer in with_sublayers(model)):
        return model
    return _copied(model, exchanging({}, _TO_FLOAT32))


def copied(model: keras.Model) -> keras.Model:
    """Return a copy of a model in the same precision, with copies of the weights."""
    return _copied(model, exchanging({}, {}))


def _copied(model: keras.Model, exchange: Exchange) -> keras.Model:
    with fresh_names(), policy_of_layers(POLICIES["float32"]):
        copy = keras.models.clone_model(model, clone_function=exchange, call_function=call_layer, recursive=True)
    copy_weights(model, copy)
    return copy


def call_layer(layer: Any, *arguments: Any, **options: Any) -> Any:
    """Call a layer with its own policy as that of the process.

    Raises:
        SettingsError: it cannot be built or called.
    """
    # Layers that it makes when it is built take the policy of the process.
    try:
        with policy_of_layers(_policy_of(layer)):
            return layer(*arguments, **options)
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(
            f"layer {layer.name} ({type(layer).__name__}) cannot be built or called: {_reason(error)}"
        ) from error


def as_functional(network: Any) -> Any:
    """Return a model as a functional one of its own layers, not compiled."""
    if isinstance(network, keras.Sequential):
        return keras.Model(network.inputs[0], network.outputs[0])
    return keras.Model(network.input, network.output)


def apply_copies(
    network: keras.Model, image: keras.KerasTensor, front: Callable[[Any], keras.KerasTensor], dtype: str
) -> Any:
    """Apply a front and copies of a functional model's layers to an image, with Podline's layers instead of stock ones.

    A copy trains like its original: what the model has frozen stays frozen.
    """
    last = max((place for place, layer in enumerate(network.layers) if kernels_of(layer)), default=0)
    exact = {id(inner) for layer in network.layers[last:] for inner in with_sublayers(layer)}
    exchanges = {
        exactly: exchanging(_OWN, {} if exactly else {POLICIES["float32"]: dtype}) for exactly in (True, False)
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
        return call_layer(layer, *given[0], **given[1])

    functional = as_functional(network)
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


def exchanging(classes: dict[Any, Any], policies: dict[str, str]) -> Callable[[keras.layers.Layer], keras.layers.Layer]:
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
                f"layer {layer.name} ({type(layer).__name__}) cannot be made from its get_config(): {_reason(error)}"
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


def _reason(error: Exception) -> str:
    """Return the first sentence of an error's cause, and the remedy."""
    sentence = re.split(r"\.\s|: \{", cause(error))[0]
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in str(error)), "")
    return f"{type(error).__name__}: {sentence[:_LONGEST_CAUSE]}{remedy and f'; {remedy}'}"
