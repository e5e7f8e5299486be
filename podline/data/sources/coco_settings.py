"""The settings that conversions of COCO's people and of keypoints of one's own have."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from podline.recipes.datasets import ConverterSettings

# Of what is made of COCO's images: raise it when a change in code changes a byte of it.
_COCO_VERSION = 3


class CocoSettings(ConverterSettings):
    """The content of records of images with people."""

    side: int = Field(
        default=368,
        ge=32,
        le=4096,
        multiple_of=8,
        exclude_if=lambda side: side == 368,
        description="of the square that images with people are put into, in pixels",
    )
    max_people: int = Field(
        default=20,
        ge=1,
        le=127,
        exclude_if=lambda people: people == 20,
        description="places for people in such a record",
    )
    keep_files: bool = Field(
        default=False,
        exclude_if=lambda keep: not keep,
        description="records hold the images' own files; the reader decodes them",
    )

    def converter(self) -> dict[str, int | str]:
        """Return what a converted data set's bytes depend on, the decoder's pixels included."""
        from podline.data.decoders import squares_digest  # noqa: PLC0415 (the decoders take a while to import)

        kept = {"images": "files"} if self.keep_files else {}
        return {
            **kept,
            "side": self.side,
            "max_people": self.max_people,
            "coco_version": _COCO_VERSION,
            "decoders": squares_digest(),
        }


class KeypointSettings(CocoSettings):
    """The meaning of annotations in COCO's format; defaults come from the annotations."""

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
        """Return what a converted data set's bytes depend on, the decoder's pixels included."""
        ours = self.model_dump(mode="json", include={"category", "sigmas", "mirrored"})
        return super().converter() | {"keypoints": json.dumps(ours, sort_keys=True)}
