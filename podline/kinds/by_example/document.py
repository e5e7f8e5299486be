"""``evaluation.json`` of a model that answers each image separately. Needs no TensorFlow."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import Field

from podline.base.frozen import omitted
from podline.documents.any_evaluation import RunEvaluation, Scored


class ImageFigures(Scored):
    """Figures on ``examples`` images, each judged once: the measures of the kind of task, with 95 % intervals."""

    examples: int = Field(ge=1)


F_co = TypeVar("F_co", bound=ImageFigures, covariant=True)


class ImageEvaluation(RunEvaluation[F_co], Generic[F_co]):
    """The evaluation of a model that answers each image separately.

    Attributes:
        class_names: names in the order of the logits; empty without classes.
        seen: the figures on the first records that were trained on, at most as many as the judged split has.
        views: number of views of each image that ``over_views`` averages; see docs/how-to/train.md.
        over_views: the trained model's figures on the split with averaged views; all other figures use one view.
    """

    class_names: tuple[str, ...]
    views: int = omitted(1)
    over_views: F_co | None = omitted(None)

    @property
    def examples(self) -> int:
        """The number of judged examples in the split."""
        return self.trained.examples


class ExampleEvaluation(ImageEvaluation[ImageFigures]):
    """The base class for kinds whose evaluation has only their measures; a subclass sets ``measure``, the main one."""

    class_names: tuple[str, ...] = ()
