"""What a model is trained for: the fields of a record that it needs, its loss by terms, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

from podline.arrays import Tensor
from podline.frozen import JsonObject

Batch = dict[str, tf.Tensor]


IMAGE, LABEL = "image", "label"


class Objective(Protocol):
    """What the loop on the device asks of a kind of training.

    Attributes:
        fields: the fields of a record that the model and the loss read; no other is read from disk or sent to a device.
        measured: the names of the measures.
    """

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a record that the model and the loss read."""
        ...

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the measures, in the order of their values."""
        ...

    @property
    def evaluated(self) -> Objective:
        """The same as it is evaluated, without what makes only the training better."""
        ...

    def prepared(self, batch: Batch) -> Batch:
        """A batch on the device with all that the model's answers are compared with; computed once for each batch."""
        ...

    def terms(self, batch: Batch, outputs: Tensor) -> Batch:
        """The terms of the loss, by name: float32, shape (n,), a value for each example; their sum is minimised.

        Args:
            batch: from :meth:`prepared`.
            outputs: what the model answers, a tensor or several by name.
        """
        ...

    def measures(self, batch: Batch, outputs: Tensor) -> Batch:
        """What is counted beside the loss, by name: float32, shape (n,), summed over the examples of a step."""
        ...

    def figures(self, sums: Mapping[str, float], examples: int) -> JsonObject:
        """What a line of ``metrics.jsonl`` says of the measures, by its fields.

        Args:
            sums: of each measure, over any number of examples.
            examples: how many.
        """
        ...

    def headline(self, sums: Mapping[str, float], examples: int) -> tuple[str, float]:
        """The one share, 0…1, that tells a person how it goes, and what it is called."""
        ...
