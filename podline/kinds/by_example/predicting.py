"""Answers any pictures with a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.data.fitting import SQUEEZE
from podline.documents.manifest import Fit, Manifest
from podline.evaluation.predicting import PictureReader, Size
from podline.kinds.by_example.kind import ExampleKind
from podline.recipes.settings import Recipe
from podline.stages.tools import PicturePrediction


@dataclass(frozen=True)
class ImageFeeder(PictureReader):
    """Fits pictures like the data set's conversion, and makes them grey if the data set is."""

    manifest: Manifest
    threshold: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data set's images."""
        return self.manifest.image_shape

    @property
    def class_names(self) -> tuple[str, ...]:
        """The data set's classes."""
        return self.manifest.class_names

    @property
    def fit(self) -> Fit:
        """How the conversion fitted images."""
        found: Any = self.manifest.converter.get("fit", SQUEEZE)
        return found

    def answers(self, outputs: tf.Tensor) -> tf.Tensor:
        """Return all outputs."""
        return outputs


@dataclass(frozen=True)
class AnswerReader(ImageFeeder):
    """Formats the answers of a kind's model as JSON and text."""

    tells = "answer"

    kind: ExampleKind = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)

    def said(
        self, name: str, _place: int, size: Size, answer: npt.NDArray[np.float32], _most: int | None = None
    ) -> PicturePrediction:
        """Return the answer for a picture."""
        decoded = self.kind.decoded(answer[None], self.recipe)
        [words] = self.kind.words(decoded, self.manifest)
        return PicturePrediction(file=name, width=size[0], height=size[1], answer=decoded[0].tolist(), words=words)
