"""Computes a model's outputs together with the outputs of all its layers and operations, also in nested models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from podline.base.arrays import Tensor
from podline.models.keras_internals import has_graph, run_graph


class InnerOutput(NamedTuple):
    """One output of one call of a layer or an operation in a model.

    Attributes:
        name: the layer's name, with the names of nested models before it: ``backbone/conv``. The second output of a
            layer that is called twice, or has two outputs, is ``backbone/conv:2``.
        operation: the layer or operation.
        value: the output.
    """

    name: str
    operation: Any
    value: Tensor

    @property
    def is_of_layer(self) -> bool:
        """Return whether a layer computes the output, not an operation of ``keras.ops``."""
        return isinstance(self.operation, keras.layers.Layer)


class OpenedModel:
    """Runs a model one layer call at a time, in the model's order."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def __call__(self, images: Any, *, training: bool) -> tuple[Any, list[InnerOutput]]:
        """Return the model's outputs for images (n, …), and the outputs of all layers and operations."""
        found: list[InnerOutput] = []
        times: Counter[str] = Counter()

        def within(prefix: str) -> Callable[..., Any]:
            def call(operation: Any, *arguments: Any, **options: Any) -> Any:
                name = f"{prefix}{operation.name}"
                if has_graph(operation):
                    return run_graph(operation, arguments[0], within(f"{name}/"))
                if isinstance(operation, keras.layers.Layer):
                    options["training"] = training  # as a functional model does
                outputs = operation(*arguments, **options)
                for value in keras.tree.flatten(outputs):
                    times[name] += 1
                    found.append(InnerOutput(name if times[name] == 1 else f"{name}:{times[name]}", operation, value))
                return outputs

            return call

        return run_graph(self._model, images, within("")), found
