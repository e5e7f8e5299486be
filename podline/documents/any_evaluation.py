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
        """By name; ``measure`` is among them."""
        ...


class AnyEvaluation(Protocol):
    """``evaluation.json`` of a run of any kind.

    Attributes:
        measure: which of the metrics says how good the model is.
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
        """The identity of the weights that were judged."""
        ...

    @property
    def split(self) -> str:
        """The examples that were judged."""
        ...

    @property
    def trained(self) -> Scored:
        """The model's figures on the split."""
        ...

    @property
    def untrained(self) -> Scored:
        """Those of the network before training, on the same split."""
        ...

    @property
    def seen(self) -> Scored:
        """The model's on examples that it was trained on."""
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
        """The number of judged examples in the split."""
        ...

    def model_dump(self, *, mode: str = ...) -> JsonObject:
        """Return the document as JSON, with the mode ``json``."""
        ...


class RunEvaluation(Frozen):
    """The fields that the evaluations of every kind begin with.

    Attributes:
        kind: the kind of task.
        run: the training run.
        dataset: the data set's name.
        fingerprint: the data set's fingerprint.
        weights_sha256: the identity of the weights that were judged.
        split: what they were judged on.
    """

    kind: str
    run: str
    dataset: str
    fingerprint: str
    weights_sha256: str
    split: str
