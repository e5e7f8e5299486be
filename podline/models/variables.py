"""Reads and sets the values of variables as named arrays, which are matched by their order.

Keras numbers the names of unnamed layers and weights throughout a process, and gives the variables of a nested
``Sequential`` other names when it is loaded. So names are only labels for people.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np

from podline.base.arrays import Array, Arrays
from podline.base.errors import ArtifactError
from podline.models.keras_internals import with_sublayers

Variables = Sequence[keras.Variable]
# Names of Keras weights that are not kernels.
_NO_KERNELS = ("bias", "beta", "gamma", "scale", "alpha")


def values_of(variables: Variables, owner: str = "") -> dict[str, Array]:
    """Return label → value in the order of the variables; a label is a path without ``owner/``, made unique."""
    values: dict[str, Array] = {}
    for place, variable in enumerate(variables):
        label = variable.path.removeprefix(f"{owner}/")
        values[label if label not in values else f"{label}/{place}"] = variable.numpy()
    return values


def require_fit(variables: Variables, arrays: Arrays) -> None:
    """Check that arrays have the number, dtypes and shapes of the variables, in the same order.

    Raises:
        ArtifactError: number, dtypes or shapes differ.
    """
    for (label, array), variable in zip(arrays.items(), variables, strict=False):
        found, needed = (array.dtype.name, array.shape), (variable.dtype, tuple(variable.shape))
        if found != needed:
            raise ArtifactError(f"{label} is {found} vs {needed} of {variable.path} in this model")
    if len(arrays) != len(variables):
        raise ArtifactError(f"got {len(arrays)} arrays, expected {len(variables)}, as this model has variables")


def assign(variables: Variables, arrays: Arrays) -> None:
    """Set variables to arrays in the same order, which :func:`require_fit` has checked."""
    for variable, array in zip(variables, arrays.values(), strict=True):
        variable.assign(array)


def weights(model: keras.Model) -> dict[str, Array]:
    """Return label → value of a model's weights and moving statistics, without the states of random generators."""
    return values_of(model.weights)


def set_weights(model: keras.Model, arrays: Arrays) -> None:
    """Load the arrays that :func:`weights` returned into a model.

    Raises:
        ArtifactError: number, dtypes or shapes of the arrays differ from those of the model's weights.
    """
    try:
        require_fit(model.weights, arrays)
    except ArtifactError as error:
        raise ArtifactError(f"weights of another model: {error}") from error
    assign(model.weights, arrays)
    finish(model)


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Copy the weights of ``source`` to ``target``, a model with the same layers."""
    target.set_weights(source.get_weights())
    finish(target)


def finish(model: keras.Model) -> None:
    """Make layers with ``finalize_state``, such as ``Normalization``, use their new weights."""
    for layer in with_sublayers(model):
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def is_kernel(variable: keras.Variable) -> bool:
    """Return whether a weight is a kernel, to which weight decay and L2 apply: a weight with two axes or more.

    Biases and the parameters of norms and activations are not kernels, even with two axes, as in attention.
    """
    return len(variable.shape) >= 2 and variable.name not in _NO_KERNELS


def kernels_of(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the trainable kernels of a layer."""
    return [variable for variable in layer.trainable_variables if is_kernel(variable)]


def by_layer(model: keras.Model) -> dict[str, dict[str, keras.Variable]]:
    """Return layer → variable name → variable, for weights with a NumPy floating-point dtype.

    Thus bfloat16 weights, counters and random seeds are left out. A layer within another is named ``outer/inner``.
    """
    layers: dict[str, dict[str, keras.Variable]] = {}
    for variable in model.weights:
        if np.issubdtype(np.dtype(variable.dtype), np.floating):
            owner, _, name = variable.path.rpartition("/")
            layers.setdefault(owner, {})[name] = variable
    return layers
