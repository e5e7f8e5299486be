"""``evaluation.json`` of a model that answers each image by itself. Needs no TensorFlow."""

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
    """The evaluation of a model that answers each image by itself.

    Attributes:
        class_names: in the order of the logits.
        trained: the model's figures on the split.
        untrained: the same network with the weights that training began with, on the same split.
        seen: the trained model on examples it was trained on (without augmentation): the first ``seen.examples``
            records that were trained on, as many as the split that is judged has at most.
        guessing: what guessing gives, and the range that chance spreads it over.
        better_than_guessing: the sanity check: the trained model lies beyond that range, on the good side.
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
    """A model's figures on some examples: ``metrics`` are all measures of its kind, with their 95 % intervals."""

    metrics: dict[str, Metric]


class ExampleEvaluation(ImageEvaluation[ExampleFigures]):
    """The evaluation of a kind that its measures judge; a kind's own is a subclass that says ``measure``."""

    measure: ClassVar[str]

    class_names: tuple[str, ...] = ()
