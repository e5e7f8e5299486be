"""The settings of a recipe for any number of labels per image."""

from __future__ import annotations

from podline.kinds.classification.settings import ImageSettings


class LabelsSettings(ImageSettings):
    """The settings of recipes with several labels."""

    kind: str = "labels"
