"""The section of a classifier's recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from podline.recipes.settings import Recipe
from podline.recipes.task import TaskSettings


class ClassificationSettings(TaskSettings):
    """What a recipe says that is about classifiers.

    Attributes:
        label_smoothing: the share of the target that ``cross_entropy`` spreads evenly over all classes.
        views: how many views of each image of the test split further figures are averaged over; 1 is none, see
            docs/how-to/train.md.
    """

    may_change = ("task.label_smoothing",)
    judging = ("views",)
    has_error = True

    kind: str = "classification"
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    views: Literal[1, 2, 6] = Field(default=1, exclude_if=lambda views: views == 1)

    def require_fit(self, recipe: Recipe) -> None:
        """Refuse to smooth the targets of another loss."""
        if self.label_smoothing and recipe.loss.kind != "cross_entropy":
            raise ValueError(
                f"task.label_smoothing={self.label_smoothing} vs loss.kind={recipe.loss.kind}: it is for "
                "cross_entropy; give task.label_smoothing=0"
            )
