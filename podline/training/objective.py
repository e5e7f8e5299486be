"""A training objective: the record fields that it reads, its loss by terms, its counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import tensorflow as tf

from podline.arrays import Tensor
from podline.frozen import JsonObject

Batch = dict[str, tf.Tensor]


IMAGE, LABEL = "image", "label"


class Objective(ABC):
    """The interface between a kind of training and the loop on the device.

    Attributes:
        fields: the fields of a record that the model and the loss read; no other is read from disk or sent to a device.
        measured: the names of the measures, in the order of their values.
    """

    fields: tuple[str, ...]
    measured: tuple[str, ...] = ()

    @property
    def evaluated(self) -> Objective:
        """The objective for evaluation, without parts that only help training."""
        return self

    def prepared(self, batch: Batch) -> Batch:
        """Return a batch on the device with all that the model's answers are compared with; computed once for each."""
        return batch

    @abstractmethod
    def terms(self, batch: Batch, outputs: Tensor) -> Batch:
        """Return the terms of the loss, by name: float32, (n,), a value for each example; their sum is minimised.

        Args:
            batch: from :meth:`prepared`.
            outputs: what the model answers, a tensor or several by name.
        """

    def measures(self, batch: Batch, outputs: Tensor) -> Batch:  # noqa: ARG002 (without measures)
        """Return what is counted beside the loss, by name: float32, (n,), summed over the examples of a step."""
        return {}

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """Return what a line of ``metrics.jsonl`` says of the measures, by its fields: by default their means.

        Args:
            sums: of each measure, over any number of examples.
            examples: how many.
        """
        return {"measures": {name: sums[name] / examples for name in self.measured}}

    def headline(self, sums: Mapping[str, float], examples: int) -> dict[str, float]:  # noqa: ARG002 (without shares)
        """Return shares, 0…1, that tell a person how it goes, by name: by default none."""
        return {}
