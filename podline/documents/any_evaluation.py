"""The common fields of the evaluations of all kinds of task."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen
from podline.documents.metric import Metric

EVALUATION = "evaluation.json"


class Scored(Frozen):
    """A model's figures on some examples: ``metrics`` by name; the evaluation's ``measure`` is one of them."""

    metrics: dict[str, Metric]


F_co = TypeVar("F_co", bound=Scored, covariant=True)


class RunEvaluation(Frozen, Generic[F_co]):
    """``evaluation.json`` of a run of any kind.

    Attributes:
        measure: name of the metric that ranks models.
        kind: the kind of task.
        run: the training run.
        dataset: the data set's name.
        fingerprint: the data set's fingerprint.
        weights_sha256: the identity of the evaluated weights.
        split: the evaluated split.
        trained: the model's figures on the split.
        untrained: the figures of the same network with random weights, on the same split.
        seen: the model's figures on training examples without augmentation.
        guessing: the figure of guessing, with the range that chance gives it.
        better_than_guessing: the sanity check: the trained model is better than this range.
        learned: the same check on training examples. A model that passes only this check needs more training images;
            one that fails it has learned nothing.
    """

    measure: ClassVar[str]

    kind: str
    run: str
    dataset: str
    fingerprint: str
    weights_sha256: str
    split: str
    trained: F_co
    untrained: F_co
    seen: F_co
    guessing: Metric
    better_than_guessing: bool
    learned: bool = True

    @classmethod
    def of(cls, evaluation: AnyEvaluation) -> Self:
        """Return an evaluation as one of this kind.

        Raises:
            ArtifactError: it is of another kind.
        """
        if isinstance(evaluation, cls):
            return evaluation
        expected = cls.model_fields["kind"].default
        raise ArtifactError(f"{evaluation.run}: got an evaluation of the kind {evaluation.kind}, expected {expected}")

    @property
    def guessed(self) -> dict[str, Metric]:
        """The figures of guessing that the sanity check uses, by the names of the metrics."""
        return {self.measure: self.guessing}

    def parts(self) -> dict[str, Metric]:
        """Return the figures of classes or joints, by name; none by default."""
        return {}

    @property
    @abstractmethod
    def examples(self) -> int:
        """The number of evaluated examples in the split."""


AnyEvaluation: TypeAlias = RunEvaluation[Scored]
