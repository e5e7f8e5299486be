"""Sets the initial values of a model's variables: from the recipe's seed, or as the model's function has set them."""

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


def _require_unquantized(kind: str, network: keras.Model) -> None:
    for layer in with_sublayers(network):
        if (mode := getattr(layer, "quantization_mode", None)) not in (None, "float8"):
            raise SettingsError(
                f"model {kind}: layer {layer.name} is quantized ({mode}), expected floating-point weights, which can "
                "be trained; leave `quantize` out, and export with `podline models export --format tflite-int8`"
            )


def _require_fixed_constants(kind: str, network: keras.Model, again: keras.Model) -> None:
    """Check that no layer with random weights is called on a constant, because its output is a random constant."""
    if not all(map(np.array_equal, _constants(network), _constants(again))):
        raise SettingsError(
            f"model {kind}: its constants differ each time the model is built, for example because a layer is called "
            "on a constant; call layers only on tensors that depend on the image"
        )


def _constants(network: keras.Model) -> list[Any]:
    arguments = [value for node in nodes_of(network) for value in node.arguments]
    return [np.asarray(value) for value in arguments if isinstance(value, _VALUES)]


def own_values(kind: str, network: keras.Model, again: keras.Model) -> dict[int, Array]:
    """Return the values that a package's function has set in a model, for example by ``adapt`` or ``load_weights``.

    Values that differ from a constant initializer's were set by the function. For a random initializer, values that are
    equal in two builds of the model were set by the function.

    Args:
        kind: the model's name in the recipe.
        network: a model that the function has built.
        again: another model that it has built in the same way.

    Returns:
        Index in ``network.weights`` → value.

    Raises:
        SettingsError: the two models differ in these values or in constants; a layer is quantized; or copies of the
            layers by ``get_config`` have other weights than the layers.
    """
    _require_unquantized(kind, network)
    _require_fixed_constants(kind, network, again)
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
                    f"model {kind}: {variable.path} has other values each time the model is built; if the model's "
                    "function draws random numbers or images, give the generator a fixed seed"
                )
            values[place] = value
    return values


def _require_same_sharing(kind: str, network: keras.Model, copy: keras.Model) -> None:
    """Check that copies of layers, made by their ``get_config``, share weights as the original layers do."""
    if len(network.weights) == len(copy.weights):
        return
    owners: dict[int, str] = {}
    for layer in network.layers:
        for variable in layer.weights:
            if (owner := owners.setdefault(id(variable), layer.name)) != layer.name:
                raise SettingsError(
                    f"model {kind}: layers {owner} and {layer.name} share {variable.path}, but layers made from their "
                    "get_config() do not; compute both in one layer of your own"
                )
    raise SettingsError(
        f"model {kind}: the model has {len(network.weights)} weights, but a copy of its layers by get_config() has "
        f"{len(copy.weights)}; return every argument of __init__ from get_config()"
    )


def set_initializers(model: keras.Model, seed: int, own: Mapping[int, Array], scope: keras.StatelessScope) -> None:
    """Replace the initializers of a new model's variables.

    A value that a layer's ``build`` has assigned in ``scope`` takes precedence over a value in ``own``, which has keys
    that are indices in ``model.weights``. Other variables use their initializer, seeded by the layer's name and the
    variable's index in the layer.

    Raises:
        SettingsError: an initializer takes no seed, and returns other values each time.
    """
    for layer in model.layers:
        states = [variable for variable in layer.variables if variable.name == SEED_STATE]
        for members, seeded in ((states, _begin), (layer.weights, _drawing)):
            for number, variable in enumerate(members):
                name = f"{layer.name}/{number}" if number else layer.name
                set_initializer(variable, seeded(variable, _seed_of(seed, name)))
    for place, variable in enumerate(model.weights):
        value = scope.get_current_value(variable)
        value = own.get(place) if value is None else value
        if value is not None:
            set_initializer(variable, _constant(value))


def _begin(_state: Any, seed: int) -> Initializer:
    return _constant([seed, 0])


def _drawing(variable: Any, seed: int) -> Initializer:
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


def _constant(value: Any) -> Initializer:
    return lambda _shape, dtype=None, **_: keras.ops.convert_to_tensor(value, dtype=dtype)


def _seed_of(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "little") % 2**31
