"""Refuses training steps that a resumed run would not repeat bit for bit.

A step may draw random numbers and keep state only if checkpoints contain its generators' states and its variables. The
traced graph shows both.
"""

# pyright: standard
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from podline.base.errors import SettingsError
from podline.training.state import TrainingState

# TensorFlow's random operations that keep their state in the process have both attributes.
_SEEDS = {"seed", "seed2"}
_UNLIFTED = re.compile(r"Unable to lift tensor <tf.Tensor '([^']+)'")
_REMEDY = (
    "give it self.seed_generator = keras.random.SeedGenerator(seed) in __init__, and pass seed=self.seed_generator to "
    "functions of keras.random"
)


@contextlib.contextmanager
def variables_explained(model: keras.Model) -> Iterator[None]:
    """Explain TensorFlow's error when a layer creates a variable while the step of several replicas is traced.

    Raises:
        SettingsError: a layer creates a variable; the message names the layer.
    """
    try:
        yield
    except Exception as error:
        if found := _UNLIFTED.search(str(error)):
            raise SettingsError(f"{_owner(found[1], model)}: {_refused(found[1])}") from error
        raise


def require_resumable(graph: Any, state: TrainingState, strategy: tf.distribute.Strategy, known: Iterable[Any]) -> None:
    """Check that checkpoints contain all state that a traced training step keeps, including random generators.

    Args:
        graph: the ``FuncGraph`` of the step.
        state: the variables that checkpoints contain.
        strategy: the strategy of the step.
        known: variables whose values do not depend on earlier steps.

    Raises:
        SettingsError: the step keeps other state; the message names the layer.
    """
    definition: Any = graph.as_graph_def()
    functions = {function.signature.name: function for function in definition.library.function}
    for nodes in (definition.node, *(function.node_def for function in functions.values())):
        for node in nodes:
            if node.attr.keys() >= _SEEDS:
                raise SettingsError(
                    f"{_owner(node.name, state.model)}: its random numbers come from TensorFlow's {node.op}, whose "
                    f"state no checkpoint contains; {_REMEDY}"
                )
    held = {id(part) for variable in state.variables for part in strategy.experimental_local_results(variable.value)}
    held |= set(map(id, known))
    for variable in graph.variables:
        if id(variable) not in held:
            owner = _owner(next(_readers(definition.node, functions, _place_of(variable, graph)), ""), state.model)
            raise SettingsError(f"{owner}: {_refused(variable.name)}")


def _refused(variable: str) -> str:
    if "seed_generator_state" in variable:
        return f"its random numbers come from a generator that no checkpoint contains; {_REMEDY}"
    return (
        f"it keeps {variable}, which no checkpoint contains; create the variable by self.add_weight(…), with "
        "trainable=False if it is not trained"
    )


def _place_of(variable: Any, graph: Any) -> str:
    return next((inner.op.name for outer, inner in graph.captures if outer is variable.handle), "")


def _readers(nodes: Iterable[Any], functions: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the names of the operations that read the tensor ``name``, also within functions that receive it."""
    for node in nodes:
        inputs = [given.partition(":")[0] for given in node.input if not given.startswith("^")]
        called = [functions[value.func.name] for value in node.attr.values() if value.func.name in functions]
        for place in (place for place, given in enumerate(inputs) if given == name):
            if not called:
                yield node.name
            for function in called:
                arguments = function.signature.input_arg
                inner = place - (len(inputs) - len(arguments))  # the first input may choose the function
                yield from _readers(function.node_def, functions, arguments[inner].name)


def _owner(operation: str, model: keras.Model) -> str:
    """Return the layer of an operation from the operation's name, such as ``while/resnet_1/stage1_conv_1/Conv2D``."""
    # Keras opens the scope of each layer twice, so TensorFlow adds a number to the layer's name.
    names = [re.sub(r"_\d+$", "", part) for part in operation.split("/")]
    layers = {layer.name: type(layer).__name__ for layer in model.layers}
    found = next((name for name in names if name in layers), None)
    return f"layer {found} ({layers[found]})" if found else "the loss or the optimizer"
