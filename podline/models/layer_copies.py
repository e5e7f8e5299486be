"""Copies a model by the configs of its layers: with Podline's or Keras's layers, and in another precision."""

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
"""Podline's layer class → the Keras class that it replaces."""
_OWN = {stock: own for own, stock in STOCK.items()}
_TO_FLOAT32 = {POLICIES["bfloat16"]: POLICIES["float32"]}
_PLAIN = (int, float, str, tuple)
_LONGEST_CAUSE = 200  # characters of an error's cause
_FUNCTION = "write a function, with @keras.saving.register_keras_serializable() before it"
_REMEDIES = {
    "__init__": "return every argument of __init__ from get_config, and pass **kwargs of __init__ to the base class",
    "instantiating a `Variable`": "create variables by self.add_weight(shape=…, dtype=…, initializer=…), not by value",
    "lambda": _FUNCTION,
    "Could not locate": _FUNCTION,
    "Could not interpret": _FUNCTION,
}
"""Text in Keras's message → remedy, for layers that cannot be made from their configs."""
Exchange = Callable[[keras.layers.Layer], keras.layers.Layer]
"""A function that converts a layer to another layer."""


def exportable(model: keras.Model) -> keras.Model:
    """Return a copy of the model with Keras's layers in float32, so that plain Keras can load its files.

    The weights are copied, and the outputs are equal except for float32 rounding.
    """
    return _copied(model, exchanging(STOCK, _TO_FLOAT32))


def in_float32(model: keras.Model) -> keras.Model:
    """Return the model if no layer computes in bfloat16; else a float32 copy with copied weights."""
    if all(layer.dtype_policy.name not in _TO_FLOAT32 for layer in with_sublayers(model)):
        return model
    return _copied(model, exchanging({}, _TO_FLOAT32))


def copied(model: keras.Model) -> keras.Model:
    """Return a copy of a model in the same precision, with copied weights."""
    return _copied(model, exchanging({}, {}))


def _copied(model: keras.Model, exchange: Exchange) -> keras.Model:
    with fresh_names(), policy_of_layers(POLICIES["float32"]):
        copy = keras.models.clone_model(model, clone_function=exchange, call_function=call_layer, recursive=True)
    copy_weights(model, copy)
    return copy


def call_layer(layer: Any, *arguments: Any, **options: Any) -> Any:
    """Call a layer while its dtype policy is the policy of the process.

    Raises:
        SettingsError: the layer cannot be built or called.
    """
    # Inner layers that its build() creates take the policy of the process.
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
    """Return an uncompiled functional model with the same layers."""
    if isinstance(network, keras.Sequential):
        return keras.Model(network.inputs[0], network.outputs[0])
    return keras.Model(network.input, network.output)


def apply_copies(
    network: keras.Model, image: keras.KerasTensor, front: Callable[[Any], keras.KerasTensor], dtype: str
) -> Any:
    """Apply ``front``, then copies of a functional model's layers, to an image; return the outputs.

    Podline's layers replace Keras's. The layers before the last layer with a kernel have the policy ``dtype``, the
    others float32. Frozen layers stay frozen.
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
    """Check that a layer's ``get_config`` leaves out no argument, so that the copy computes the same."""
    found = _arguments(copy)
    for name, value in _arguments(layer).items():
        if found.get(name, value) != value:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}): a copy by its get_config() has {name}={found[name]}, "
                f"expected {value}; return every argument of __init__ from get_config()"
            )


def _arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    """Return a layer's plain attributes that are named like an argument of ``__init__``, and its weight shapes."""
    names = inspect.signature(type(layer).__init__).parameters.keys() & vars(layer).keys()
    plain = {name: vars(layer)[name] for name in sorted(names) if isinstance(vars(layer)[name], _PLAIN)}
    return plain | {"weights": [tuple(variable.shape) for variable in layer.weights]}


def exchanging(classes: dict[Any, Any], policies: dict[str, str]) -> Callable[[keras.layers.Layer], keras.layers.Layer]:
    """Return a function that copies a layer without its weights.

    Args:
        classes: class of the layer → class of the copy; by default the same class.
        policies: dtype policy of the layer → policy of the copy; by default the same policy.
    """

    def exchange(layer: keras.layers.Layer) -> Any:
        _require_loadable(type(layer), layer.name)
        try:
            # An operation that is not a layer has no policy: its dtype, for example of a cast, is an argument.
            config = layer.get_config()
            if isinstance(layer, keras.layers.Layer):
                config = _with_policies(config, policies)
            policy = _policy_of(layer)
            # Inner layers that its __init__ creates take the policy of the process.
            with policy_of_layers(policies.get(policy, policy)):
                return classes.get(type(layer), type(layer)).from_config(config)
        except Exception as error:
            raise SettingsError(
                f"layer {layer.name} ({type(layer).__name__}) cannot be made from its get_config(): {_reason(error)}"
            ) from error

    return exchange


def _policy_of(layer: Any) -> str:
    """Return a layer's dtype policy if it is in :data:`POLICIES`; else, and for operations, that of float32."""
    name = getattr(getattr(layer, "dtype_policy", None), "name", "")
    return name if name in POLICIES.values() else POLICIES["float32"]


def _with_policies(config: Any, policies: dict[str, str]) -> Any:
    """Return a layer's config with policies replaced, also in the configs of inner layers."""
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
    """Check that Keras can load a layer's class by its registered name, as the evaluation needs."""
    if kind.__module__.split(".")[0] == "keras":
        return
    if keras.saving.get_registered_object(keras.saving.get_registered_name(kind)) is not kind:
        raise SettingsError(
            f"layer {name}: the class {kind.__module__}.{kind.__name__} is not registered with Keras; write "
            "@keras.saving.register_keras_serializable() before the class, or for a class of a library "
            f"keras.saving.register_keras_serializable()({kind.__name__}) in your package"
        )


def _reason(error: Exception) -> str:
    """Return the first sentence of an error's cause, and the remedy."""
    sentence = re.split(r"\.\s|: \{", cause(error))[0]
    remedy = next((remedy for text, remedy in _REMEDIES.items() if text in str(error)), "")
    return f"{type(error).__name__}: {sentence[:_LONGEST_CAUSE]}{remedy and f'; {remedy}'}"
