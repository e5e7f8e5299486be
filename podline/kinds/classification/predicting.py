"""Answers pictures with a classifier: classes with their probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.arrays import Image
from podline.compare.noise import Floats
from podline.documents.manifest import Manifest
from podline.evaluation.predicting import Predicted
from podline.kinds.by_example.predicting import ImageFeeder
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.stages.tools import ClassShare, PicturePrediction
from podline.store.contract import Store


class Classes(ImageFeeder):
    """A reader for classifiers; see :class:`podline.evaluation.predicting.PictureReader`."""

    def say(self, name: str, place: int, pixels: Image, answer: npt.NDArray[np.float32]) -> Predicted:
        """Return each class with its probability, most probable first."""
        odds = np.exp(answer.astype(np.float64) - answer.max())
        return predicted(name, pixels, self.manifest.class_names, odds / odds.sum())


def predicted(
    name: str, pixels: Image, class_names: tuple[str, ...], shares: Floats, named: npt.NDArray[np.bool_] | None = None
) -> Predicted:
    """Format a model's answer for a picture.

    Args:
        name: name of the picture.
        pixels: uint8 (height, width, 3).
        class_names: names of all classes.
        shares: their probabilities, (classes,).
        named: mask of the classes to list, (classes,); all by default.
    """
    ranked = np.argsort(-shares, kind="stable")
    labels: list[int] = (ranked if named is None else ranked[named[ranked]]).tolist()
    told = tuple(ClassShare(name=class_names[label], probability=float(shares[label])) for label in labels)
    height, width = pixels.shape[:2]
    return Predicted(PicturePrediction(file=name, width=width, height=height, classes=told), pixels)


def reader(
    store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
) -> Classes:
    """Return the reader of a run's model."""
    return Classes(manifest)
