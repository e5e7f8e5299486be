"""The section of a classifier's recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podline.recipes.settings import Recipe
from podline.recipes.task import TaskSettings


class ImageSettings(TaskSettings):
    """What recipes of all kinds say whose models answer an image with a logit for each class.

    Attributes:
        label_smoothing: the share of the target that ``cross_entropy`` spreads evenly over all answers.
    """

    may_change = ("task.label_smoothing",)
    has_error = True
    mixes_targets = True

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def require_fit(self, recipe: Recipe) -> None:
        """Refuse to smooth the targets of another loss."""
        if self.label_smoothing and recipe.loss.kind != "cross_entropy":
            raise ValueError(
                f"task.label_smoothing={self.label_smoothing} vs loss.kind={recipe.loss.kind}: it is for "
                "cross_entropy; give task.label_smoothing=0"
            )


class ClassificationSettings(ImageSettings):
    """What a recipe says that is about classifiers.

    Attributes:
        views: how many views of each image of the test split further figures are averaged over, see
            docs/how-to/train.md; 1 is none.
    """

    judging = ("views",)

    kind: str = "classification"
    views: Literal[1, 2, 6] = Field(default=1, exclude_if=lambda views: views == 1)
