"""The contract by which a kind of task prepares pictures for its models, and formats their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from podline.base.arrays import Image
from podline.data.fitting import fitted
from podline.data.pictures import Form
from podline.documents.manifest import Fit, Manifest
from podline.stages.tools import PicturePrediction

Size = tuple[int, int]
"""Width and height of a picture, in pixels."""


class PictureReader(ABC):
    """Prepares pictures for a model, and formats its answers; each kind of task has one."""

    threshold: float | None
    """The least score of people, or probability of labels; None for classes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The (height, width, channels) of the model's input."""

    @property
    @abstractmethod
    def fit(self) -> Fit:
        """How pictures fit into this shape."""

    @property
    @abstractmethod
    def tells(self) -> Literal["classes", "labels", "people", "answer"]:
        """The form of an answer: the most probable of all classes, some labels, people, or an installed kind's own."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes of answers, in the order of a classifier's outputs."""
        return ()

    def form(self, manifest: Manifest) -> Form:
        """Return what becomes of a picture's file, as in the conversion of the data set."""
        return Form(self.shape, self.fit, int(manifest.converter.get("white", 0)))

    def fed(self, pixels: Image) -> Image:
        """Fit a picture, uint8 (height, width, 3), to the shape of the model's input."""
        return fitted(pixels, self.shape, self.fit)

    def answers(self, outputs: Any) -> Any:
        """Select the model outputs that are used, by default all; runs in TensorFlow's graph."""
        return outputs

    @abstractmethod
    def said(self, name: str, place: int, size: Size, answer: Any, most: int | None = None, /) -> PicturePrediction:
        """Format the model's answer for a picture.

        Args:
            name: name of the picture.
            place: number of the picture, from 1.
            size: the picture's.
            answer: the picture's output of :meth:`answers`.
            most: number of classes to list; all by default.
        """

    def drawn(self, _said: PicturePrediction, pixels: Image, /) -> Image:
        """Draw an answer on its picture; by default, return the picture."""
        return pixels
