"""Answers any pictures with a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.arrays import Image
from podline.data.fitting import SQUEEZE, fitted
from podline.documents.manifest import Manifest
from podline.evaluation.predicting import Predicted
from podline.kinds.by_example.kind import ExampleKind
from podline.recipes.settings import Recipe
from podline.stages.tools import PicturePrediction


@dataclass(frozen=True)
class ImageFeeder:
    """Converts pictures to a model's input; see :class:`podline.evaluation.predicting.PictureReader`."""

    manifest: Manifest
    threshold: float | None = None

    def fed(self, pixels: Image) -> Image:
        """Fit a picture like the data set's conversion does, and make it grey if the data set is."""
        fit: Any = self.manifest.converter.get("fit", SQUEEZE)
        return fitted(pixels, self.manifest.image_shape, fit)

    def answers(self, outputs: tf.Tensor) -> tf.Tensor:
        """Return all outputs."""
        return outputs


@dataclass(frozen=True)
class AnswerReader(ImageFeeder):
    """Formats the answers of a kind's model as JSON and text."""

    kind: ExampleKind = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)

    def say(self, name: str, place: int, pixels: Image, answer: npt.NDArray[np.float32]) -> Predicted:
        """Return the answer for a picture."""
        decoded = self.kind.decoded(answer[None], self.recipe)
        height, width = pixels.shape[:2]
        [words] = self.kind.words(decoded, self.manifest)
        said = PicturePrediction(file=name, width=width, height=height, answer=decoded[0].tolist(), words=words)
        return Predicted(said, pixels)
