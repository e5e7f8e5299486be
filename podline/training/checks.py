"""Finds the first value that is not finite in a training step: layer by layer, on the CPU."""

# pyright: standard
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.base.arrays import Arrays
from podline.contract.objective import Objective, penalties
from podline.data.records import IMAGE
from podline.models.opened import OpenedModel


@dataclass(frozen=True)
class FirstNonFinite:
    """The first value that is not finite in a training step.

    Attributes:
        where: the tensor with this value: a layer's output, a term of the loss or the gradient of a variable.
        value: ``nan``, ``inf`` or ``-inf``.
        before: a clause that says which earlier tensors are finite.
    """

    where: str
    value: str
    before: str


class BatchCheck:
    """Computes every layer's output, loss term and gradient of a model for one batch."""

    def __init__(self, model: keras.Model, objective: Objective) -> None:
        """Open a model whose layers are called one by one."""
        self._model, self._objective = model, objective
        self._opened = OpenedModel(model)

    def fault(self, batch: Arrays, places: Sequence[int] | None = None) -> FirstNonFinite | None:
        """Return the first non-finite value of a training step on a batch, or None.

        Args:
            batch: the fields of the batch, each of shape (n, …).
            places: indices of the examples to compute; all by default.
        """
        chosen = {
            name: tf.constant(values if places is None else values[list(places)]) for name, values in batch.items()
        }
        with tf.device("CPU:0"):
            return self._fault(chosen)

    def losses(self, batch: Arrays, *, training: bool = True) -> npt.NDArray[np.float32]:
        """Return the loss of each example in a training step or, with ``training=False``, an evaluation: shape (n,)."""
        with tf.device("CPU:0"):
            tensors = {name: tf.constant(values) for name, values in batch.items()}
            outputs = self._model(tensors[IMAGE], training=training)
            terms = self._objective.terms(self._objective.with_targets(tensors), outputs)
            return np.sum([np.asarray(term) for term in terms.values()], axis=0)

    def largest_output(self, batch: Arrays) -> tuple[str, float]:
        """Return the name of the layer whose output has the largest magnitude for a batch, and that magnitude."""
        with tf.device("CPU:0"):
            _, inner = self._opened(tf.constant(batch[IMAGE]), training=True)
        largest = [float(np.max(np.abs(output.value))) for output in inner]
        place = int(np.argmax(largest))
        return inner[place].name, largest[place]

    def _fault(self, batch: dict[str, tf.Tensor]) -> FirstNonFinite | None:
        variables, batch = self._model.trainable_variables, self._objective.with_targets(batch)
        with tf.GradientTape() as tape:
            outputs, inner = self._opened(batch[IMAGE], training=True)
            terms = self._objective.terms(batch, outputs)
            of_model = penalties(self._model)
            loss = tf.add_n([tf.reduce_sum(term) for term in terms.values()] + of_model)
        layers = {
            f"the output of {'layer' if output.is_of_layer else 'operation'} {output.name}": output.value
            for output in inner
        }
        of_terms = {f"the loss term {name}": term for name, term in terms.items()}
        of_penalties = {f"the model's penalty {number}": value for number, value in enumerate(of_model, start=1)}
        forward = _first(layers, "the outputs before it are finite") or _first(
            of_terms | of_penalties, "the output of every layer is finite"
        )
        if forward:
            return forward
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        # In backward order: the gradients of the layers nearest to the loss come first.
        backward = {
            f"the gradient of {variable.path}": gradient
            for variable, gradient in zip(reversed(variables), reversed(gradients), strict=True)
            if gradient is not None
        }
        norm = {"the norm of all gradients": tf.linalg.global_norm(list(backward.values()))}
        return _first(backward, "the loss and the gradients of the layers after it are finite") or _first(
            norm, "the loss and every gradient is finite"
        )


def _first(tensors: Mapping[str, Any], before: str) -> FirstNonFinite | None:
    for where, tensor in tensors.items():
        values = np.ravel(tensor)
        wrong = values[~np.isfinite(values)]
        if wrong.size:
            return FirstNonFinite(where, str(wrong.flat[0]), before)
    return None
