"""What a classifier says of pictures: classes with their probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from podline.arrays import Image
from podline.data.fitting import SQUEEZE, fitted
from podline.documents.manifest import Manifest
from podline.evaluation.predicting import Predicted
from podline.noise import Floats
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.stages.tools import ClassShare, PicturePrediction
from podline.store.contract import Store


@dataclass(frozen=True)
class Classes:
    """See :class:`podline.evaluation.predicting.PictureReader`."""

    manifest: Manifest
    threshold: float | None = None

    def fed(self, pixels: Image) -> Image:
        """The picture as the data set's conversion fits pictures, grey if its images are."""
        fit: Any = self.manifest.converter.get("fit", SQUEEZE)
        return fitted(pixels, self.manifest.image_shape, fit)

    def answers(self, outputs: tf.Tensor) -> tf.Tensor:
        """The logits."""
        return outputs

    def say(self, name: str, place: int, pixels: Image, answer: npt.NDArray[np.float32]) -> Predicted:
        """Each class with its probability, the likeliest first."""
        odds = np.exp(answer.astype(np.float64) - answer.max())
        return predicted(name, pixels, self.manifest.class_names, odds / odds.sum())


def predicted(
    name: str, pixels: Image, class_names: tuple[str, ...], shares: Floats, named: npt.NDArray[np.bool_] | None = None
) -> Predicted:
    """Return what a model says of a picture.

    Args:
        name: the picture's.
        pixels: uint8 (height, width, 3).
        class_names: of all classes.
        shares: their probabilities, (classes,).
        named: which of them are told, (classes,); all by default.
    """
    ranked = np.argsort(-shares, kind="stable")
    labels: list[int] = (ranked if named is None else ranked[named[ranked]]).tolist()
    told = tuple(ClassShare(name=class_names[label], probability=float(shares[label])) for label in labels)
    height, width = pixels.shape[:2]
    return Predicted(PicturePrediction(file=name, width=width, height=height, classes=told), pixels)


def reader(
    store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
) -> Classes:
    """A run's."""
    return Classes(manifest)
