"""The interface by which a kind of task prepares pictures for its models, and formats the models' answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from podline.base.arrays import Image
from podline.data.fitting import fitted
from podline.data.pictures import Form
from podline.documents.manifest import Fit, Manifest
from podline.stages.tools import PicturePrediction

_MOST = 5  # most probable classes of an answer
Size = tuple[int, int]
"""Width and height of a picture, in pixels."""


class PictureReader(ABC):
    """Prepares pictures for a model, and formats the model's answers; each kind of task has a subclass."""

    threshold: float | None
    """The lowest score of people, or the lowest probability of every label, to list.

    None if each label has a threshold of its own, and for kinds without thresholds."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the model's input: (height, width, channels)."""

    @property
    @abstractmethod
    def fit(self) -> Fit:
        """How pictures are fitted into :attr:`shape`."""

    @property
    @abstractmethod
    def tells(self) -> Literal["classes", "labels", "people", "answer"]:
        """The form of an answer: the most probable classes, labels, people, or another form of an installed kind."""

    @property
    def most(self) -> int | None:
        """The number of classes to list if the caller gives none; None to list all, as for labels."""
        return _MOST if self.tells == "classes" else None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes of answers, in the order of a classifier's outputs; empty for answers without classes."""
        return ()

    def form(self, manifest: Manifest) -> Form:
        """Return how a picture's file is decoded and fitted: as in the conversion of the data set."""
        return Form(self.shape, self.fit, int(manifest.converter.get("white", 0)))

    def fed(self, pixels: Image) -> Image:
        """Fit a picture, uint8 (height, width, 3), to the shape of the model's input."""
        return fitted(pixels, self.shape, self.fit)

    def answers(self, outputs: Any) -> Any:
        """Select the model outputs that :meth:`said` needs, by default all; runs in TensorFlow's graph."""
        return outputs

    @abstractmethod
    def said(self, name: str, place: int, size: Size, answer: Any, most: int | None = None, /) -> PicturePrediction:
        """Format the model's answer for a picture.

        Args:
            name: name of the picture.
            place: number of the picture, from 1.
            size: width and height of the picture, in pixels.
            answer: the picture's output of :meth:`answers`.
            most: largest number of classes to list; all by default.
        """

    def drawn(self, _said: PicturePrediction, pixels: Image, /) -> Image:
        """Draw a model's answer on the picture; by default, return the picture unchanged."""
        return pixels
