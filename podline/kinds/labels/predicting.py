"""Answers pictures with the labels whose probability reaches their threshold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from podline.compare.noise import Floats
from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import Manifest
from podline.evaluation.predicting import Size
from podline.kinds.by_example.predicting import ImageFeeder
from podline.kinds.classification.predicting import with_shares
from podline.kinds.labels.scores import probabilities, thresholds_of
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.stages.tools import PicturePrediction
from podline.store.contract import Store


@dataclass(frozen=True)
class LabelReader(ImageFeeder):
    """A reader for several labels; see :class:`podline.evaluation.predicting.PictureReader`.

    Attributes:
        thresholds: threshold of each label, (labels,); ``threshold`` is the common one, or None.
    """

    tells = "labels"

    thresholds: Floats = field(kw_only=True)

    def said(
        self, name: str, _place: int, size: Size, answer: npt.NDArray[np.float32], most: int | None = None
    ) -> PicturePrediction:
        """Return each predicted label with its probability, most probable first."""
        shares = probabilities(answer)
        ranked = np.argsort(-shares, kind="stable")
        predicted = ranked[(shares >= self.thresholds)[ranked]]
        return with_shares(name, size, self.manifest.class_names, shares, predicted[:most])


def reader(
    store: Store, training: TrainSpec, manifest: Manifest, threshold: float | None, reporter: Reporter
) -> LabelReader:
    """Return a reader of a run's answers.

    Without ``threshold`` it uses the thresholds that the run's evaluation chose; without an evaluation, 0.5.
    """
    thresholds = np.full(len(manifest.class_names), 0.5 if threshold is None else threshold)
    if threshold is None and store.exists(f"{training.folder}/{EVALUATION}"):
        thresholds = thresholds_of(store, training.folder)
    elif threshold is None:
        reporter.warn("labels are predicted from 50 % on, since no evaluation chose thresholds; give --threshold")
    return LabelReader(manifest, threshold, thresholds=thresholds)
