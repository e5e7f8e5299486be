"""Answers pictures with a classifier: classes with their probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from podline.compare.noise import Floats
from podline.documents.manifest import Manifest
from podline.evaluation.predicting import Size
from podline.kinds.by_example.predicting import ImageFeeder
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.stages.tools import ClassShare, PicturePrediction
from podline.store.contract import Store


class Classes(ImageFeeder):
    """A reader for classifiers; see :class:`podline.evaluation.predicting.PictureReader`."""

    tells = "classes"

    def said(
        self, name: str, _place: int, size: Size, answer: npt.NDArray[np.float32], most: int | None = None
    ) -> PicturePrediction:
        """Return each class with its probability, most probable first."""
        odds = np.exp(answer.astype(np.float64) - answer.max())
        return with_shares(
            name, size, self.manifest.class_names, odds / odds.sum(), np.argsort(-odds, kind="stable")[:most]
        )


def with_shares(
    name: str, size: Size, class_names: tuple[str, ...], shares: Floats, labels: npt.NDArray[np.int64]
) -> PicturePrediction:
    """Format a model's answer for a picture.

    Args:
        name: name of the picture.
        size: its width and height.
        class_names: names of all classes.
        shares: their probabilities, (classes,).
        labels: the classes to list, in order.
    """
    told = tuple(ClassShare(name=class_names[label], probability=float(shares[label])) for label in labels.tolist())
    return PicturePrediction(file=name, width=size[0], height=size[1], classes=told)


def reader(
    store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
) -> Classes:
    """Return the reader of a run's model."""
    return Classes(manifest)
