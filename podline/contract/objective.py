"""Defines a training objective: the record fields that it reads, the terms of its loss, its measures."""

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
        remarks: lines on what was found in the data, told at the start of a training.
    """

    fields: tuple[str, ...]
    measured: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def evaluated(self) -> Objective:
        """The objective for evaluation, without parts that only help training."""
        return self

    def with_targets(self, batch: Batch) -> Batch:
        """Return a batch on the device with the targets of the model's outputs; called once per batch."""
        return batch

    @abstractmethod
    def terms(self, batch: Batch, outputs: Tensor) -> Batch:
        """Return the terms of the loss by name: float32, (n,), one value per example; training minimises their sum.

        Args:
            batch: a batch from :meth:`with_targets`.
            outputs: the model's outputs, a tensor or several by name.
        """

    def measures(self, batch: Batch, outputs: Tensor) -> Batch:  # noqa: ARG002 (without measures)
        """Return counts beside the loss, by name: float32, (n,); a step sums them over its examples."""
        return {}

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """Return the measures' fields for a line of ``metrics.jsonl``: by default their means.

        Args:
            sums: the sum of each measure over some examples.
            examples: the number of examples.
        """
        return {"measures": {name: sums[name] / examples for name in self.measured}}

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:  # noqa: ARG002 (without shares)
        """Return shares, 0…1, by name for the progress display: by default none."""
        return {}


def penalties(model: keras.Model) -> list[Tensor]:
    """Return the penalties of a model's last call, on weights and by ``add_loss`` of its layers: float32 scalars."""
    import tensorflow as tf  # noqa: PLC0415 (kinds define objectives without it)

    return [tf.reduce_sum(tf.cast(penalty, tf.float32)) for penalty in model.losses]
