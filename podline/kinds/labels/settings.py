"""The section of a recipe for any number of labels for each image."""

from __future__ import annotations

from podline.kinds.classification.settings import ImageSettings


class LabelsSettings(ImageSettings):
    """Settings of recipes with several labels."""

    kind: str = "labels"
