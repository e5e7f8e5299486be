"""The settings for conversions of COCO's people and of users' own keypoints."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from podline.recipes.datasets import ConverterSettings

# Version of the records from COCO's images: raise it when a code change alters a byte.
_COCO_VERSION = 4


class CocoSettings(ConverterSettings):
    """The settings of records with people in images."""

    side: int = Field(
        default=368,
        ge=32,
        le=4096,
        multiple_of=8,
        exclude_if=lambda side: side == 368,
        description="the side of the square that contains an image, in pixels",
    )
    max_people: int = Field(
        default=20,
        ge=1,
        le=127,
        exclude_if=lambda people: people == 20,
        description="the number of people that a record can hold",
    )
    keep_jpeg: bool = Field(
        default=False,
        exclude_if=lambda keep: not keep,
        description="store the squares in records as JPEG files of quality 90; the reader decodes them",
    )

    def converter(self) -> dict[str, int | str]:
        """Return the values that determine a converted data set's bytes, including the decoder's pixels."""
        from podline.data.decoders import pixels_digest  # noqa: PLC0415 (the decoders take a while to import)
        from podline.data.jpeg_files import converter  # noqa: PLC0415 (as the decoders)

        return {
            **(converter() if self.keep_jpeg else {}),
            "side": self.side,
            "max_people": self.max_people,
            "coco_version": _COCO_VERSION,
            "decoders": pixels_digest(),
        }


class KeypointSettings(CocoSettings):
    """How to read annotations in COCO's format; defaults come from the annotations."""

    category: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="the name of the category to learn, if categories differ in their joints",
    )
    sigmas: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        exclude_if=lambda given: not given,
        description="OKS's constants by joint; by default COCO's for a joint of the same name, else 0.05",
    )
    mirrored: tuple[tuple[str, str], ...] | None = Field(
        default=None,
        exclude_if=lambda pairs: pairs is None,
        description="pairs of joints that a mirror image exchanges; [] for none; detected by name if not given",
    )

    def converter(self) -> dict[str, int | str]:
        """Return the values that determine a converted data set's bytes, including the decoder's pixels."""
        ours = self.model_dump(mode="json", include={"category", "sigmas", "mirrored"})
        return super().converter() | {"keypoints": json.dumps(ours, sort_keys=True)}
