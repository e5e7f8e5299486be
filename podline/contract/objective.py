"""The interface of a training objective: the record fields to read, the terms of the loss, the measures."""

# pyright: standard
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from podline.base.arrays import Tensor
from podline.base.frozen import JsonObject

if TYPE_CHECKING:
    import keras

Batch: TypeAlias = dict[str, Tensor]


class Objective(ABC):
    """The interface between a kind of training and the loop on the device.

    Attributes:
        fields: the record fields that the model and the loss read; only these are read from disk and sent to a device.
        measured: the names of the measures, in the order of their values.
        remarks: lines about the data, which the log shows at the start of a training.
    """

    fields: tuple[str, ...]
    measured: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def evaluated(self) -> Objective:
        """The objective for evaluation: without label smoothing and other terms that only help training."""
        return self

    def with_targets(self, batch: Batch) -> Batch:
        """Add the targets of the model's outputs to a batch, on the device; called once per batch."""
        return batch

    @abstractmethod
    def terms(self, batch: Batch, outputs: Tensor) -> Batch:
        """Return the terms of the loss by name: float32, (n,), one value per example; training minimises their sum.

        Args:
            batch: a batch from :meth:`with_targets`.
            outputs: the model's outputs, a tensor or several by name.
        """

    def measures(self, batch: Batch, outputs: Tensor) -> Batch:  # noqa: ARG002 (without measures)
        """Return counts by name, one value per example: float32, (n,); each step sums them over its examples."""
        return {}

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """Return the measures' fields for a line of ``metrics.jsonl``: by default their means.

        Args:
            sums: the sum of each measure over some examples.
            examples: the number of examples.
        """
        return {"measures": {name: sums[name] / examples for name in self.measured}}

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:  # noqa: ARG002 (without shares)
        """Return shares (0…1) by name, such as the accuracy, for the progress display; none by default."""
        return {}


def penalties(model: keras.Model) -> list[Tensor]:
    """Return the losses that a model's layers added in its last call (regularizers, ``add_loss``): float32 scalars."""
    import tensorflow as tf  # noqa: PLC0415 (kinds define objectives without it)

    return [tf.reduce_sum(tf.cast(penalty, tf.float32)) for penalty in model.losses]
