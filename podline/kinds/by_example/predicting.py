"""Prepares pictures for a model, and formats the model's answers to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from podline.base.arrays import Array, Floats
from podline.contract.picture_reader import PictureReader, Size
from podline.data.fitting import SQUEEZE
from podline.documents.manifest import Fit, Manifest
from podline.kinds.by_example.hooks import ExampleHooks
from podline.recipes.settings import Recipe
from podline.stages.tools import PicturePrediction


@dataclass(frozen=True)
class AnswerReader(PictureReader):
    """Fits pictures into the model's input like the data set's conversion, and formats the model's answers.

    Attributes:
        kind: the kind of the model.
        recipe: the recipe of the model.
        manifest: the manifest of the model's data set.
        threshold: the caller's threshold for the probability of every label, or None.
        thresholds: the threshold of each class, (classes,); empty if the kind has none.
    """

    kind: ExampleHooks[Any]
    recipe: Recipe
    manifest: Manifest
    threshold: float | None = None
    thresholds: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def tells(self) -> Literal["classes", "labels", "people", "answer"]:
        """The form of the kind's answers."""
        return self.kind.tells

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data set's images."""
        return self.manifest.image_shape

    @property
    def class_names(self) -> tuple[str, ...]:
        """The data set's classes; empty without classes."""
        return self.manifest.class_names

    @property
    def fit(self) -> Fit:
        """How pictures are fitted: as in the conversion of the data set."""
        found: Any = self.manifest.converter.get("fit", SQUEEZE)
        return found

    def said(self, name: str, place: int, size: Size, answer: Array, most: int | None = None, /) -> PicturePrediction:
        """Return the answer for a picture."""
        picture = PicturePrediction(file=name, width=size[0], height=size[1])
        found = self.kind.prediction(picture, answer, self.recipe, self.manifest, self.thresholds)
        return found if found.classes is None else found.changed(classes=found.classes[:most])
