"""What is trained for: a small Huber loss."""

from __future__ import annotations

import tensorflow as tf

from podline.training.objective import Batch, Objective


class Nearness(Objective):
    """Numbers near the true ones."""

    fields = ("image", "number")
    measured = ("mae",)

    def __init__(self, unit: float) -> None:
        self._unit = unit

    def terms(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return the Huber loss of each example, (n,)."""
        error = tf.abs(outputs[:, 0] - batch["number"] / self._unit)
        return {"huber": tf.where(error < 1, error**2 / 2, error - 0.5)}

    def measures(self, batch: Batch, outputs: tf.Tensor) -> Batch:
        """Return the absolute errors, (n,)."""
        return {"mae": tf.abs(outputs[:, 0] * self._unit - batch["number"])}
