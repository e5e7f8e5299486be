"""The data set with any number of labels per image."""

from __future__ import annotations

from typing import Literal

from podline.base.frozen import omitted
from podline.data.images.settings import AUTO, ImagesSettings
from podline.recipes.datasets import DataSet

LABELS = DataSet(
    "labels",
    "podline.data.images.opening:open_images",
    kind="labels",
    settings="podline.kinds.labels.data_sets:LabelledImages",
    several=True,
)


class LabelledImages(ImagesSettings):
    """The settings of the data set ``labels``: any number of labels per image."""

    kind = "labels"
    several = True

    joined_by: Literal["auto", "|", ";", ",", " ", "nothing"] = omitted(
        AUTO,
        description="the separator of labels in a text, or nothing; auto uses the first of |, ; and , in a column",
    )

    @property
    def joining(self) -> str | None:
        """Return the separator of the labels in a text: "" for one label per text, None to detect it in each column."""
        return {AUTO: None, "nothing": ""}.get(self.joined_by, self.joined_by)
