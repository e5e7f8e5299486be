"""The private parts of Keras that Podline uses: all of them are in this module.

CONTRIBUTING.md lists them. ``tests/test_private_parts.py`` fails if a version of Keras renames one, and
``tests/models/test_keras_internals.py`` if one behaves otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
from keras.src.applications import convnext
from keras.src.backend.common import global_state
from keras.src.models.functional import Functional

LayerScale = convnext.LayerScale
"""A factor for each channel, a layer of ConvNeXt."""
APPLYING = ("apply", "_backend_apply_gradients", "_apply_weight_decay", "_clip_gradients")
"""The methods by which an optimizer applies gradients, with decay and clipping."""

Initializer = Callable[..., Any]


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Restart Keras's numbering of unnamed layers and variables, independent of earlier models in the process."""
    names = global_state.get_global_attribute("object_name_uids")
    global_state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("object_name_uids", names)


class CallNode(NamedTuple):
    """One call of a layer or an operation of ``keras.ops`` in a model.

    Attributes:
        operation: the called layer or operation.
        arguments: its arguments, flat: symbolic tensors, constants and settings.
        inputs: the symbolic tensors among them.
        outputs: its outputs, flat.
        sources: the layers or operations that produce its inputs.
    """

    operation: Any
    arguments: tuple[Any, ...]
    inputs: tuple[keras.KerasTensor, ...]
    outputs: tuple[keras.KerasTensor, ...]
    sources: tuple[Any, ...]


def has_graph(layer: object) -> bool:
    """Return whether a layer is a functional model or a ``Sequential``, so that its layers can be called one by one."""
    return isinstance(layer, (Functional, keras.Sequential)) and _graph(layer) is not None


def nodes_of(model: keras.Model) -> Iterator[CallNode]:
    """Yield every call of a layer or operation, in the order of the model."""
    graph = _graph(model)
    nodes = {id(node) for at_depth in graph._nodes_by_depth.values() for node in at_depth}
    for operation in graph.operations:
        for node in operation._inbound_nodes:
            if id(node) in nodes and not node.is_input:
                arguments = keras.tree.flatten([node.arguments.args, node.arguments.kwargs])
                sources = [tensor._keras_history.operation for tensor in node.input_tensors]
                tensors = tuple(node.input_tensors), tuple(node.output_tensors)
                yield CallNode(operation, tuple(arguments), *tensors, tuple(sources))


def run_graph(model: keras.Model, inputs: Any, call: Callable[..., Any]) -> Any:
    """Compute a model's outputs by ``call(operation, *args, **kwargs)`` for each layer and operation of its graph."""
    graph = _graph(model)
    return graph._run_through_graph(graph._standardize_inputs(inputs), call_fn=call)


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return a layer and all layers within it, each outer one before its inner ones."""
    return layer._flatten_layers()


def initializer_of(variable: keras.Variable) -> Initializer:
    """Return the initializer of a variable without a value, as in a ``StatelessScope``."""
    return variable._initializer


def set_initializer(variable: keras.Variable, initializer: Initializer) -> None:
    """Replace the initializer of a variable without a value."""
    variable._initializer = initializer


def without_sum(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer take gradients that are already summed over the replicas."""
    optimizer._all_reduce_sum_gradients = _as_they_are


def place_in(optimizer: keras.optimizers.Optimizer, variable: Any) -> int:
    """Return the place of a variable among those that an optimizer was built for."""
    return optimizer._get_variable_index(variable)


def _as_they_are(gradients_and_variables: Any) -> Any:
    return gradients_and_variables


def _graph(model: Any) -> Any:
    return getattr(model, "_functional", model)  # a Sequential holds one
