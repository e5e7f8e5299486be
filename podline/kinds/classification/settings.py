"""The settings of a classifier's recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podline.base.frozen import omitted
from podline.data.records import LABEL
from podline.recipes.task import TaskSettings


class ImageSettings(TaskSettings):
    """The settings of every kind whose models give one logit per class of an image.

    Attributes:
        label_smoothing: the share of the target that ``cross_entropy`` spreads evenly: over all classes, or over yes
            and no for each of several labels.
    """

    may_change = beside_loss = ("task.label_smoothing",)
    mixes_targets = True

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def require_fit(self, loss: str) -> None:
        """Raise ValueError for label smoothing with a loss other than ``cross_entropy``."""
        if self.label_smoothing and loss != "cross_entropy":
            raise ValueError(
                f"task.label_smoothing={self.label_smoothing} needs loss.kind=cross_entropy, got loss.kind={loss}; "
                "give task.label_smoothing=0"
            )


class ClassificationSettings(ImageSettings):
    """The settings of classifiers.

    Attributes:
        views: number of views of each test image for additional, averaged figures (docs/how-to/train.md); 1 for none.
        class_weights: factors for the loss of each class's examples: ``balanced`` (all classes have the same total
            weight), or class → factor, 1 for classes without an entry.
        sampling: ``shuffled`` (each example once per epoch), or ``balanced`` (equally many of each class).
    """

    may_change = (*ImageSettings.may_change, "task.class_weights")
    judging = ("views",)
    has_error = True

    kind: str = "classification"
    views: Literal[1, 2, 6] = omitted(1)
    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0)]] | None = omitted(None)
    sampling: Literal["shuffled", "balanced"] = omitted("shuffled")

    @property
    def balanced_by(self) -> str | None:
        """Return the record field whose values are sampled equally often: the label with ``balanced``, else None."""
        return LABEL if self.sampling == "balanced" else None
