"""The common fields of the evaluations of all kinds of task."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar

from podline.base.errors import ArtifactError
from podline.base.frozen import Frozen
from podline.documents.metric import Metric

EVALUATION = "evaluation.json"


class Scored(Frozen):
    """A model's metrics on some examples, by name; the main metric, ``RunEvaluation.measure``, is one of them."""

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
        weights_sha256: sha256 of the evaluated weights, which identifies the model.
        split: the evaluated split.
        trained: the model's metrics on the split.
        untrained: the metrics of the same network with random weights, on the same split.
        seen: the model's metrics on training examples without augmentation.
        guessing: the main metric of answers that ignore the image, with its 95 % range.
        better_than_guessing: the sanity check: whether the trained model's main metric is better than the range of
            ``guessing``, unless the kind has another check.
        learned: whether the model passes the same check on training examples. If it is better only there, it needs
            more training images; if it is not, it has learned nothing.
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
        """Return ``evaluation`` itself, typed as this class.

        Raises:
            ArtifactError: the evaluation is not of this class's kind of task.
        """
        if isinstance(evaluation, cls):
            return evaluation
        expected = cls.model_fields["kind"].default
        raise ArtifactError(f"{evaluation.run}: got an evaluation of the kind {evaluation.kind}, expected {expected}")

    @property
    def guessed(self) -> dict[str, Metric]:
        """The metrics of guessing by name; ``better_than_guessing`` compares the model with them."""
        return {self.measure: self.guessing}

    def parts(self) -> dict[str, Metric]:
        """Return the metric of each class or joint, by the name of the class or joint; empty by default."""
        return {}

    @property
    @abstractmethod
    def examples(self) -> int:
        """The number of evaluated examples in the split."""


AnyEvaluation: TypeAlias = RunEvaluation[Scored]
