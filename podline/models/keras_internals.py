"""Wraps the private parts of Keras that Podline uses; no other module uses private parts of Keras.

CONTRIBUTING.md lists these parts. ``tests/test_private_parts.py`` fails if a version of Keras renames a part, and
``tests/models/test_keras_internals.py`` fails if a part behaves differently.
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
    """Restart Keras's numbering of unnamed layers and variables while the body runs, then restore the old numbers."""
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
        arguments: the flattened arguments: symbolic tensors, constants and settings.
        inputs: the symbolic tensors among the arguments.
        outputs: the flattened outputs.
    """

    operation: Any
    arguments: tuple[Any, ...]
    inputs: tuple[keras.KerasTensor, ...]
    outputs: tuple[keras.KerasTensor, ...]


def has_graph(layer: object) -> bool:
    """Return whether a layer is a functional model or a built ``Sequential``: its layers can be called one by one."""
    return isinstance(layer, (Functional, keras.Sequential)) and _graph(layer) is not None


def nodes_of(model: keras.Model) -> Iterator[CallNode]:
    """Yield every call of a layer or operation, in the order of the model."""
    graph = _graph(model)
    nodes = {id(node) for at_depth in graph._nodes_by_depth.values() for node in at_depth}
    for operation in graph.operations:
        for node in operation._inbound_nodes:
            if id(node) in nodes and not node.is_input:
                arguments = keras.tree.flatten([node.arguments.args, node.arguments.kwargs])
                yield CallNode(operation, tuple(arguments), tuple(node.input_tensors), tuple(node.output_tensors))


def run_graph(model: keras.Model, inputs: Any, call: Callable[..., Any]) -> Any:
    """Compute a model's outputs by ``call(operation, *args, **kwargs)`` for each layer and operation of its graph."""
    graph = _graph(model)
    return graph._run_through_graph(graph._standardize_inputs(inputs), call_fn=call)


def with_sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return a layer and all layers within it; an outer layer comes before its inner layers."""
    return layer._flatten_layers()


def initializer_of(variable: keras.Variable) -> Initializer:
    """Return the initializer of a variable that has no value yet, for example in a ``StatelessScope``."""
    return variable._initializer


def set_initializer(variable: keras.Variable, initializer: Initializer) -> None:
    """Replace the initializer of a variable that has no value yet."""
    variable._initializer = initializer


def without_sum(optimizer: keras.optimizers.Optimizer) -> None:
    """Make an optimizer not sum gradients over the replicas, because they are already summed."""
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables


def place_in(optimizer: keras.optimizers.Optimizer, variable: Any) -> int:
    """Return the index of a variable in the list of variables that an optimizer was built for."""
    return optimizer._get_variable_index(variable)


def _graph(model: Any) -> Any:
    return getattr(model, "_functional", model)  # a Sequential contains a functional model
