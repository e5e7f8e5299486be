"""The common fields of the evaluations of all kinds of task."""

from __future__ import annotations

from typing import ClassVar, Protocol

from podline.documents.metric import Metric
from podline.frozen import Frozen, JsonObject

EVALUATION = "evaluation.json"


class Scored(Protocol):
    """A model's figures on some examples."""

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics by name; ``measure`` is one of them."""
        ...


class AnyEvaluation(Protocol):
    """``evaluation.json`` of a run of any kind.

    Attributes:
        measure: name of the metric that ranks models.
    """

    measure: ClassVar[str]

    @property
    def kind(self) -> str:
        """The name of the kind of task."""
        ...

    @property
    def run(self) -> str:
        """The training run."""
        ...

    @property
    def dataset(self) -> str:
        """The data set's name."""
        ...

    @property
    def fingerprint(self) -> str:
        """The data set's fingerprint."""
        ...

    @property
    def weights_sha256(self) -> str:
        """The identity of the evaluated weights."""
        ...

    @property
    def split(self) -> str:
        """The evaluated split."""
        ...

    @property
    def trained(self) -> Scored:
        """The model's figures on the split."""
        ...

    @property
    def untrained(self) -> Scored:
        """The figures of the same network with random weights, on the same split."""
        ...

    @property
    def seen(self) -> Scored:
        """The model's figures on training examples."""
        ...

    @property
    def guessing(self) -> Metric:
        """The baseline of guessing."""
        ...

    @property
    def better_than_guessing(self) -> bool:
        """The sanity check."""
        ...

    @property
    def examples(self) -> int:
        """The number of evaluated examples in the split."""
        ...

    def model_dump(self, *, mode: str = ...) -> JsonObject:
        """Return the document as JSON, with the mode ``json``."""
        ...


class RunEvaluation(Frozen):
    """The first fields of every kind's evaluation.

    Attributes:
        kind: the kind of task.
        run: the training run.
        dataset: the data set's name.
        fingerprint: the data set's fingerprint.
        weights_sha256: the identity of the evaluated weights.
        split: the evaluated split.
    """

    kind: str
    run: str
    dataset: str
    fingerprint: str
    weights_sha256: str
    split: str
