"""The values of variables as named arrays; they are stored and matched by the variables' places.

Keras numbers the names of unnamed layers and weights over a process, and names the variables of a nested ``Sequential``
differently when it is loaded. So a name is only a label for people; the order of the arrays counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from podline.base.arrays import Array, Arrays
from podline.base.errors import ArtifactError
from podline.models.keras_internals import with_sublayers

Variables = Sequence[keras.Variable]
# What Keras's layers call weights that neither turn nor mix their inputs.
_NO_KERNELS = ("bias", "beta", "gamma", "scale", "alpha")


def values_of(variables: Variables, owner: str = "") -> dict[str, Array]:
    """Return the values of variables by label, in their order; a label omits the name of their owner."""
    values: dict[str, Array] = {}
    for place, variable in enumerate(variables):
        label = variable.path.removeprefix(f"{owner}/")
        values[label if label not in values else f"{label}/{place}"] = variable.numpy()
    return values


def require_fit(variables: Variables, arrays: Arrays) -> None:
    """Check that arrays, in the order of variables, have their number, types and shapes.

    Raises:
        ArtifactError: the arrays belong to other variables.
    """
    for (label, array), variable in zip(arrays.items(), variables, strict=False):
        found, needed = (array.dtype.name, array.shape), (variable.dtype, tuple(variable.shape))
        if found != needed:
            raise ArtifactError(f"{label} is {found} vs {needed} of {variable.path} in this model")
    if len(arrays) != len(variables):
        raise ArtifactError(f"it holds {len(arrays)} arrays vs {len(variables)} of this model")


def assign(variables: Variables, arrays: Arrays) -> None:
    """Set variables to arrays that fit; see :func:`require_fit`."""
    for variable, array in zip(variables, arrays.values(), strict=True):
        variable.assign(array)


def weights(model: keras.Model) -> dict[str, Array]:
    """Return a model's weights and other state by label, without the states of random generators."""
    return values_of(model.weights)


def set_weights(model: keras.Model, arrays: Arrays) -> None:
    """Load the arrays that :func:`weights` returned into a model.

    Raises:
        ArtifactError: the weights belong to another model.
    """
    try:
        require_fit(model.weights, arrays)
    except ArtifactError as error:
        raise ArtifactError(f"weights of another model: {error}") from error
    assign(model.weights, arrays)
    finish(model)


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Copy the weights of a model to one with the same layers."""
    target.set_weights(source.get_weights())
    finish(target)


def finish(model: keras.Model) -> None:
    """Let layers that compute with what ``adapt`` found, as ``Normalization``, see new weights."""
    for layer in with_sublayers(model):
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()


def is_kernel(variable: keras.Variable) -> bool:
    """Return whether a weight is a kernel, which weight decay and L2 reduce: one with two axes or more.

    Biases and the parameters of norms and activations are none, whatever their axes, as those of attention's biases.
    """
    return len(variable.shape) >= 2 and variable.name not in _NO_KERNELS


def kernels_of(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the trainable kernels of a layer."""
    return [variable for variable in layer.trainable_variables if is_kernel(variable)]


def is_averaged(variable: keras.Variable) -> bool:
    """Return whether a moving average of a variable has a meaning: not for counters and masks."""
    return tf.as_dtype(variable.dtype).is_floating


def floating(model: keras.Model) -> list[keras.Variable]:
    """Return the weights of floating-point types that NumPy has, as files of other programs hold them."""
    return [variable for variable in model.weights if np.issubdtype(np.dtype(variable.dtype), np.floating)]
