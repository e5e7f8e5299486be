"""The section of a recipe for any number of labels for each image."""

from __future__ import annotations

from pydantic import Field

from podline.recipes.settings import Recipe
from podline.recipes.task import TaskSettings


class LabelsSettings(TaskSettings):
    """What a recipe says that is about several labels.

    Attributes:
        label_smoothing: the share of each label's target that is spread evenly over yes and no by ``cross_entropy``.
    """

    may_change = ("task.label_smoothing",)
    has_error = True

    kind: str = "labels"
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def require_fit(self, recipe: Recipe) -> None:
        """Refuse to smooth the targets of another loss."""
        require_smoothable(recipe, self.label_smoothing)
