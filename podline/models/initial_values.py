"""The initial values of a model's variables: by the recipe's seed, or those that the model's function has set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array
from podline.base.errors import SettingsError
from podline.models.keras_internals import (
    Initializer,
    fresh_names,
    initializer_of,
    nodes_of,
    set_initializer,
    with_sublayers,
)
from podline.models.layer_copies import as_functional, call_layer, exchanging
from podline.models.precision import POLICIES, policy_of_layers

SEED_STATE = "seed_generator_state"
"""The name of the variable that holds the state of a random generator of Keras."""
_VALUES = (tf.Tensor, tf.Variable, keras.Variable)


def require_unquantized(kind: str, network: keras.Model) -> None:
    """Refuse a layer that computes with integers, as after a call of ``quantize``: its weights have no gradient.

    Raises:
        SettingsError: a layer is quantized.
    """
    for layer in with_sublayers(network):
        if (mode := getattr(layer, "quantization_mode", None)) not in (None, "float8"):
            raise SettingsError(
                f"model {kind}: layer {layer.name} is quantized ({mode}), expected floating-point weights, which can "
                "be trained; leave `quantize` out, and export with `podline models export --format tflite-int8`"
            )


def require_fixed_constants(kind: str, network: keras.Model, again: keras.Model) -> None:
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


def own_values(kind: str, network: keras.Model, again: keras.Model) -> dict[int, Array]:
    """Return the values that a model's function has set itself, as by ``adapt`` or ``load_weights``, by place.

    If an initializer always gives the same values, other values were set by the function. The values of a random
    initializer cannot be computed again: there, values that two builds of the model share were set by the function.

    Raises:
        SettingsError: the function sets other values each time.
    """
    values: dict[int, Array] = {}
    with fresh_names(), policy_of_layers(POLICIES["float32"]), keras.StatelessScope(initialize_variables=False):
        copy = exchanging({}, {})
        fresh = keras.models.clone_model(
            as_functional(network), clone_function=copy, call_function=call_layer, recursive=True
        )
        _require_same_sharing(kind, network, fresh)
        sides = (as_functional(network), as_functional(again), fresh)
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
    """Refuse layers that share a weight, if layers made from their ``get_config`` do not share it.

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


def seed_variables(model: keras.Model, seed: int) -> None:
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


def begin_with(model: keras.Model, own: Mapping[int, Array], scope: keras.StatelessScope) -> None:
    """Replace the initializers of variables whose values a layer's ``build``, or the model's function, has set."""
    for place, variable in enumerate(model.weights):
        value = scope.get_current_value(variable)
        value = own.get(place) if value is None else value
        if value is not None:
            set_initializer(variable, _constant(value))


def _constant(value: Any) -> Initializer:
    return lambda _shape, dtype=None, **_: keras.ops.convert_to_tensor(value, dtype=dtype)


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little") % 2**31
