"""The settings that a conversion of keypoints of one's own has."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from podline.data.sources.coco_settings import CocoSettings


class KeypointSettings(CocoSettings):
    """How annotations in COCO's format are understood; nothing given is found in the annotations."""

    category: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="the name of the category to learn, where categories differ in their joints",
    )
    sigmas: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        exclude_if=lambda given: not given,
        description="OKS's constants by joint; others have COCO's of a joint of that name, else 0.05",
    )
    mirrored: tuple[tuple[str, str], ...] | None = Field(
        default=None,
        exclude_if=lambda pairs: pairs is None,
        description="pairs of joints that change places in a mirror image; [] if none do; found by name if not given",
    )

    def converter(self) -> dict[str, int | str]:
        """Return what a converted data set's bytes depend on, the decoder's version included."""
        ours = self.model_dump(mode="json", include={"category", "sigmas", "mirrored"})
        return super().converter() | {"keypoints": json.dumps(ours, sort_keys=True)}
