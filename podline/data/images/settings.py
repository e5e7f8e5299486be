"""The settings of data sets of the user's own images."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from podline.base import entry_points
from podline.base.frozen import omitted
from podline.documents.manifest import ORDER, USUAL_KIND, Fit
from podline.recipes import own_code
from podline.recipes.datasets import ConverterSettings
from podline.recipes.kind_table import text_targets
from podline.recipes.parts import LAYOUTS
from podline.recipes.targets import TextTargets
from podline.store import digests

# Up to 5 % of MNIST's test images are near-duplicates of another writer's digits, and 1.5 % in CIFAR-10.
NEAR_SHARE = 0.1
AUTO = "auto"
MARKS = ("|", ";", ",")
"""Separators of several labels in a text; the first of these that occurs is used."""


class PictureSettings(ConverterSettings):
    """The settings that all sources of pictures have.

    Attributes:
        kind: the kind of task that defines the targets.
        after_decoding: names of settings that do not change decoded pictures.
    """

    kind: ClassVar[str] = USUAL_KIND
    after_decoding: ClassVar[frozenset[str]] = frozenset({"near_share", "test_share", "corrections"})

    side: int
    keep_jpeg: bool = omitted(
        False, description="store resized images in records as JPEG files of quality 90; the reader decodes them"
    )
    white: int = omitted(
        0,
        ge=0,
        lt=2**16,
        description="the value of white in images of 16 bits, such as 1023 for 10 bits; by default 65535, or a "
        "TIFF's SMaxSampleValue",
    )
    test_share: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="the share of images for the test split, unless the source has a training and a held-out split",
    )
    near_share: float = omitted(
        NEAR_SHARE,
        ge=0,
        le=1,
        description="the largest share of a held-out split's images with a near-duplicate in another split; above it, "
        "the source is refused; with 1, near-duplicates are not searched",
    )

    corrections: dict[str, str] = omitted(
        {}, description="reviewed labels, recorded in the store: identity of an image → its label; empty leaves it out"
    )
    forgotten: dict[str, str] = omitted(
        {},
        description="images removed by `podline data forget`, recorded in the store: identity of an image → the reason",
    )

    @property
    @abstractmethod
    def layouts(self) -> tuple[str, ...]:
        """Return the names of the layouts that the source may have, or ``module:name``."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The (height, width, channels) of every image in records."""
        return self.side, self.side, 3

    @property
    def fitting(self) -> Fit:
        """How images are fitted into :attr:`shape`."""
        return "letterbox"

    @property
    def targets(self) -> TextTargets | None:
        """Return the target type of the kind of task if labels are its texts; else None."""
        return None

    def converter(self) -> dict[str, int | str]:
        """Return all values besides the source that determine a converted data set's bytes, decoders included."""
        from podline.data.decoders import pixels_digest  # noqa: PLC0415 (the decoders take a while to import)
        from podline.data.jpeg_files import converter  # noqa: PLC0415 (as the decoders)

        kept = converter() if self.keep_jpeg else {}
        if self.corrections:
            kept["corrections"] = digests.of_json(self.corrections)
        if self.forgotten:
            kept["forgotten"] = digests.of_json(self.forgotten)
        if self.white:
            kept["white"] = self.white
        share = {"order": ORDER, "test_share": str(self.test_share)}
        return {"side": self.side, **kept, **share, "decoders": pixels_digest()}


class ImagesSettings(PictureSettings):
    """The settings of a source of images: where images and targets are, and the form of the records.

    Attributes:
        several: whether an image may have several labels: in a list, in several rows of a table, or in columns of
            zeros and ones.
    """

    several: ClassVar[bool] = False

    layout: str = Field(default=AUTO, description="the layout of the source; auto detects it")
    images: str = Field(default="", description="the folder of a table's images; by default the folder of the table")
    file_column: str = Field(
        default="",
        description="the column of image files, or of images in a Parquet file; in a WebDataset the suffix of images, "
        "in TFDS the feature; detected by default",
    )
    label_column: str = Field(
        default="",
        description="the column of labels; in a WebDataset the key in the JSON, or the suffix of the class, in TFDS "
        "the feature; label.name reads the member name of the object in the column label; detected by default",
    )
    split_column: str = Field(default="", description="the column of splits; detected by default; 'none': no column")
    group_column: str = Field(
        default="", description="the column of groups; detected by default; images of one group go to the same split"
    )
    class_depth: int = omitted(
        0,
        ge=0,
        description="the number of folders that name a class: with 1, cat/new belongs to the class cat; 0 for all",
    )
    side: int = Field(default=64, ge=8, le=1024, description="the side of the square images in records, in pixels")
    fit: Fit = Field(
        default="letterbox",
        description="how images fit: whole with black borders, the middle square, or whole with changed proportions",
    )
    channels: Literal[1, 3] = Field(default=3, description="3 for colour, 1 for grey")

    @property
    def layouts(self) -> tuple[str, ...]:
        """Return the names of the layouts that the source may have."""
        return LAYOUTS.names() if self.layout == AUTO else (self.layout,)

    @property
    def code(self) -> dict[str, str]:
        """Return the code digest of each installed layout that the source may have, by name."""
        installed = entry_points.installed(LAYOUTS.group)
        return {point.name: own_code.of_point(point) for point in installed if point.name in self.layouts}

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folder of a table's images if it is set, else none."""
        return (self.images,) if self.images else ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """The (height, width, channels) of every image in records."""
        return self.side, self.side, self.channels

    @property
    def fitting(self) -> Fit:
        """How images are fitted into :attr:`shape`."""
        return self.fit

    @property
    def targets(self) -> TextTargets:
        """Return the target type of the kind of task, which parses the source's labels."""
        return text_targets(self.kind)

    @property
    def one_class(self) -> bool:
        """Return whether to refuse several labels per image, mostly unique labels, and labels of objects."""
        return False

    @property
    def joining(self) -> str | None:
        """Return the separator of several labels in a text: empty for none, None (the default) to detect it."""
        return None

    def converter(self) -> dict[str, int | str]:
        """See :meth:`PictureSettings.converter`."""
        return {**self.model_dump(mode="json", include={"fit", "channels"}), **super().converter()}


class ClassesSettings(ImagesSettings):
    """The settings of the data set ``images``: one class per image."""

    labels_are_classes: bool = omitted(
        False,
        description="take each label as the class of its whole image, including those that occur once, texts such as "
        "'a|b', and labels beside boxes",
    )

    @property
    def one_class(self) -> bool:
        """Return whether to refuse several labels per image, mostly unique labels, and labels of objects."""
        return not self.labels_are_classes
