"""``evaluation.json`` of a model that answers each image separately. Needs no TensorFlow."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from pydantic import Field

from podline.documents.any_evaluation import RunEvaluation
from podline.documents.metric import Metric
from podline.frozen import Frozen


class ImageFigures(Frozen):
    """Figures on ``examples`` images, each judged once."""

    examples: int = Field(ge=1)


F = TypeVar("F", bound=ImageFigures)


class ImageEvaluation(RunEvaluation, Generic[F]):
    """The evaluation of a model that answers each image separately.

    Attributes:
        class_names: names in the order of the logits.
        trained: the model's figures on the split.
        untrained: the same network with random weights, on the same split.
        seen: the trained model on training examples without augmentation: the first ``seen.examples`` training records,
            at most as many as the judged split has.
        guessing: the figure of guessing, with the range that chance gives it.
        better_than_guessing: the sanity check: the trained model is better than this range.
    """

    class_names: tuple[str, ...]
    trained: F
    untrained: F
    seen: F
    guessing: Metric
    better_than_guessing: bool

    @property
    def examples(self) -> int:
        """The number of judged examples in the split."""
        return self.trained.examples


class ExampleFigures(ImageFigures):
    """A model's figures on some examples: ``metrics`` has all measures of its kind, with their 95 % intervals."""

    metrics: dict[str, Metric]


class ExampleEvaluation(ImageEvaluation[ExampleFigures]):
    """The evaluation of a kind that uses measures; a kind's own subclass sets ``measure``."""

    measure: ClassVar[str]

    class_names: tuple[str, ...] = ()
