"""The settings of data sets of images of one's own."""

from __future__ import annotations

import operator
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from podline import entry_points
from podline.documents.manifest import Fit
from podline.kinds.contract import TextTargets
from podline.kinds.shipped import USUAL_KIND
from podline.kinds.table import text_targets
from podline.recipes import own_code
from podline.recipes.datasets import ConverterSettings
from podline.recipes.parts import LAYOUTS
from podline.store import digests

# Of MNIST's test images up to 5 % are that near to another writer's digit; of CIFAR-10's 1.5 %.
NEAR_SHARE = 0.1
AUTO = "auto"
MARKS = ("|", ";", ",")
"""What joins labels in a text; the first that is there."""


class ImagesSettings(ConverterSettings):
    """The settings of a source of images: where images and targets are, and the form of the records.

    Attributes:
        kind: of task: its targets read what a source says of an image.
        several: whether an image may have several labels: in a list, in several rows of a table, or in columns of
            zeros and ones.
    """

    kind: ClassVar[str] = USUAL_KIND
    several: ClassVar[bool] = False

    layout: str = Field(default=AUTO, description="of the source; auto is what is found there")
    images: str = Field(default="", description="the folder of a table's images; a table's own by default")
    file_column: str = Field(default="", description="of a table, or with a Parquet file's images; found by default")
    label_column: str = Field(
        default="", description="of a table; found by default; also the key in a WebDataset's JSON"
    )
    split_column: str = Field(default="", description="of a table; found by default")
    group_column: str = Field(
        default="", description="of a table; found by default; images of one group stay on one side"
    )
    side: int = Field(default=64, ge=8, le=1024, description="of the square that every image becomes, in pixels")
    fit: Fit = Field(
        default="letterbox",
        description="how: whole with black beside it, the square in its middle, or whole without its proportions",
    )
    keep_files: bool = Field(
        default=False,
        description="records hold the images' own files, of any kind; the reader decodes them",
        exclude_if=lambda keep: not keep,
    )
    keep_jpeg: bool = Field(
        default=False,
        description="records hold the images, in their side, as JPEG files of quality 90; the reader decodes them",
        exclude_if=lambda keep: not keep,
    )
    channels: Literal[1, 3] = Field(default=3, description="3 for colour, 1 for grey")
    test_share: float = Field(
        default=0.1, gt=0, lt=1, description="of images that become the test split where the source has none"
    )
    near_share: float = Field(
        default=NEAR_SHARE,
        ge=0,
        le=1,
        description="of the test images that may have a near-duplicate among training images",
        exclude_if=lambda value: value == NEAR_SHARE,
    )

    corrections: dict[str, str] = Field(
        default_factory=dict,
        description="of reviews, from the store: the sha256 of an image's pixels → its label, or empty to drop it",
        exclude_if=operator.not_,
    )
    forgotten: dict[str, str] = Field(
        default_factory=dict,
        description="from the store: the sha256 of a forgotten image's file → the reason",
        exclude_if=operator.not_,
    )

    @model_validator(mode="after")
    def _keeps_one_kind_of_files(self) -> ImagesSettings:
        if self.keep_files and self.keep_jpeg:
            raise ValueError(
                "keep_files=true vs keep_jpeg=true: records hold the images' own files, or JPEG files of the images in "
                "their side; leave one of them out"
            )
        return self

    @property
    def layouts(self) -> tuple[str, ...]:
        """Return the layouts that the source may have."""
        return LAYOUTS.names() if self.layout == AUTO else (self.layout,)

    @property
    def code(self) -> dict[str, str]:
        """Return the digests of the code of installed layouts that the source may have."""
        installed = entry_points.installed(LAYOUTS.group)
        return {point.name: own_code.of_point(point) for point in installed if point.name in self.layouts}

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folder of a table's images, where it is another one."""
        return (self.images,) if self.images else ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of every image."""
        return self.side, self.side, self.channels

    @property
    def targets(self) -> TextTargets:
        """Return the targets of the kind."""
        return text_targets(self.kind)

    @property
    def one_class(self) -> bool:
        """Return whether a label that may be several, a value or an object's is refused."""
        return False

    @property
    def joining(self) -> str | None:
        """Return the separator of labels in a text, "" for none; None if each column decides."""
        return None

    def converter(self) -> dict[str, int | str]:
        """Return what a converted data set's bytes depend on, the decoders' pixels included; in any layout the same."""
        from podline.data.decoders import pixels_digest  # noqa: PLC0415 (the decoders take a while to import)

        own = self.model_dump(mode="json", include={"side", "fit", "channels"})
        kept = {"images": "files"} if self.keep_files else {}
        if self.keep_jpeg:
            from podline.data.jpeg_files import QUALITY, encoder_digest  # noqa: PLC0415 (as the decoders)

            kept = {"images": f"jpeg {QUALITY}", "encoder": encoder_digest()}
        if self.corrections:
            kept["corrections"] = digests.of_json(self.corrections)
        if self.forgotten:
            kept["forgotten"] = digests.of_json(self.forgotten)
        return {**own, **kept, "order": "checksum", "test_share": str(self.test_share), "decoders": pixels_digest()}


class ClassesSettings(ImagesSettings):
    """The settings of the data set ``images``: a class for each image."""

    labels_are_classes: bool = Field(
        default=False,
        description="take each label as the class of its whole image, also decimal numbers, texts such as 'a|b', and "
        "labels beside boxes",
        exclude_if=lambda value: not value,
    )

    @property
    def one_class(self) -> bool:
        """Return whether a label that may be several, a value or an object's is refused."""
        return not self.labels_are_classes
