"""The settings for conversions of COCO's people and of users' own keypoints."""

from __future__ import annotations

import json
from typing import Annotated, ClassVar

from pydantic import Field

from podline.base.frozen import omitted
from podline.data.images.settings import PictureSettings

# Version of the records: raise it when a code change alters a byte.
_VERSION = 4


class PeopleSettings(PictureSettings):
    """The conversion settings of data sets with people in images.

    Attributes:
        official: whether only COCO's own annotation files are read.
    """

    official: ClassVar[bool] = False

    after_decoding: ClassVar[frozenset[str]] = PictureSettings.after_decoding | {"max_people"}

    side: int = omitted(
        368, ge=32, le=4096, multiple_of=8, description="the side of the square that contains an image, in pixels"
    )
    max_people: int = omitted(20, ge=1, le=127, description="the number of people that a record can hold")
    test_share: float = omitted(
        0.2, gt=0, lt=1, description="the share of images for the test split if the source has a single annotation file"
    )
    near_share: float = omitted(
        1.0,
        ge=0,
        le=1,
        description="the largest share of a held-out split's images with a near-duplicate in another split; above it, "
        "the source is refused; with 1, near-duplicates are not searched",
    )

    turn: bool = omitted(
        False,
        description="rotate images by their EXIF orientation; needed if the annotations belong to the rotated images",
    )

    @property
    def layouts(self) -> tuple[str, ...]:
        """Return the only layout: keypoint annotations."""
        return ("podline.data.people.layouts:Keypoints",)

    def converter(self) -> dict[str, int | str]:
        """See :meth:`PictureSettings.converter`."""
        ours = {"max_people": self.max_people, "joints_version": _VERSION, **({"turn": 1} if self.turn else {})}
        return super().converter() | ours


class CocoSettings(PeopleSettings):
    """The conversion settings of COCO's people."""

    official: ClassVar[bool] = True


class KeypointSettings(PeopleSettings):
    """The conversion settings of a user's keypoints; defaults come from the annotations."""

    category: str = omitted("", description="the name of the category to learn, if categories differ in their joints")
    sigmas: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = omitted(
        {},
        description="OKS constants by joint; by default those of the annotations, or else COCO's for joints of the "
        "same name and 0.05 for others",
    )
    mirrored: tuple[tuple[str, str], ...] | None = omitted(
        None,
        description="pairs of joints that are swapped in mirrored images; [] for none; by default detected by name",
    )

    def converter(self) -> dict[str, int | str]:
        """See :meth:`PictureSettings.converter`."""
        ours = self.model_dump(mode="json", include={"category", "sigmas", "mirrored"})
        return super().converter() | {"keypoints": json.dumps(ours, sort_keys=True)}
