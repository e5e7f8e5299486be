"""``evaluation.json`` of a model that answers each image by itself. Needs no TensorFlow."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from podline.documents.metric import Metric
from podline.frozen import Frozen


class ExampleFigures(Frozen):
    """A model's figures on some examples.

    Attributes:
        examples: how many were judged, each once.
        metrics: every measure of the kind, with its 95 % interval.
    """

    examples: int = Field(ge=1)
    metrics: dict[str, Metric]


class ExampleEvaluation(Frozen):
    """One trained model on one split, every example once; a kind's own is a subclass with ``measure`` and ``kind``.

    Attributes:
        measure: which of the metrics says how good the model is.
        kind: the kind of task.
        run: the training run.
        dataset: the data set's name.
        fingerprint: the data set's fingerprint.
        weights_sha256: the identity of the weights that were judged.
        split: what they were judged on.
        trained: the model's figures on the split.
        untrained: the same network with the weights that training began with, on the same split.
        seen: the trained model on examples it was trained on, at most as many.
        guessing: ``measure`` of an answer that does not look at the image.
        better_than_guessing: the sanity check: the model lies beyond that interval, on the good side.
    """

    measure: ClassVar[str]

    kind: str
    run: str
    dataset: str
    fingerprint: str
    weights_sha256: str
    split: str
    trained: ExampleFigures
    untrained: ExampleFigures
    seen: ExampleFigures
    guessing: Metric
    better_than_guessing: bool

    @property
    def examples(self) -> int:
        """How many examples of the split were judged."""
        return self.trained.examples
