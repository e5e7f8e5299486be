"""The settings that a conversion of COCO has of its own."""

from __future__ import annotations

from importlib.metadata import version

from pydantic import Field

from podline.recipes.datasets import ConverterSettings

# Of what is made of COCO's images: raise it when a change in code changes a byte of it.
_COCO_VERSION = 3


class CocoSettings(ConverterSettings):
    """What records of images with people hold."""

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
        description="records hold the images' own files, which whoever reads them decodes",
    )

    def converter(self) -> dict[str, int | str]:
        """Return what a converted data set's bytes depend on, the decoder's version included."""
        kept = {"images": "files"} if self.keep_files else {}
        return {
            **kept,
            "side": self.side,
            "max_people": self.max_people,
            "coco_version": _COCO_VERSION,
            "opencv": version("opencv-python-headless"),  # another one may round a pixel differently
        }
