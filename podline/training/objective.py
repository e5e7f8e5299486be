"""What a model is trained for: the fields of a record that it needs, its loss by terms, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.manifest import Manifest
from podline.recipes.settings import Recipe
from podline.training.losses import cross_entropy

Batch = dict[str, tf.Tensor]
Arrays = Mapping[str, npt.NDArray[Any]]
IMAGE, LABEL = "image", "label"


class Objective(Protocol):
    """What the loop on the device asks of a kind of training.

    Attributes:
        fields: the fields of a record that the model and the loss read; no other is read from disk or sent to a device.
        measured: the names of the measures.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """See above."""
        ...

    @property
    def measured(self) -> tuple[str, ...]:
        """See above."""
        ...

    def terms(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """The terms of the loss, by name: float32, shape (n,), a value for each example; their sum is minimised."""
        ...

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """What is counted beside the loss, by name: float32, shape (n,), summed over the examples of a step."""
        ...

    def refused(self, arrays: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """The first of some examples that nothing can be learned from.

        Args:
            arrays: their fields, (n, …); the image may be left out.
            manifest: of their data set.

        Returns:
            Its place in the arrays and what is wrong with it, or None.
        """
        ...


class Classification:
    """One class for each image.

    Attributes:
        smoothing: see :func:`podline.training.losses.cross_entropy`.
    """

    fields: tuple[str, ...] = (IMAGE, LABEL)
    measured: tuple[str, ...] = ("correct",)

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def terms(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """``cross_entropy``, in nats.

        Args:
            batch: with the label, any integer type, (n,).
            outputs: logits, float32, (n, classes).
        """
        return {"cross_entropy": cross_entropy(batch[LABEL], outputs, self.smoothing)}

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """``correct``: 1 where the largest logit is the label's, else 0."""
        guesses = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        return {"correct": tf.cast(guesses == tf.cast(batch[LABEL], tf.int32), tf.float32)}

    def refused(self, arrays: Arrays, manifest: Manifest) -> tuple[int, str] | None:
        """The first label that the head has no output for."""
        labels, classes = arrays[LABEL], len(manifest.class_names)
        wrong = np.flatnonzero((labels < 0) | (labels >= classes))
        if not wrong.size:
            return None
        return int(wrong[0]), f"its label is {labels[wrong[0]]} vs 0 to {classes - 1} that the model's head has"


def objective_of(recipe: Recipe) -> Classification:
    """What a recipe trains for."""
    return Classification(smoothing=recipe.label_smoothing)
