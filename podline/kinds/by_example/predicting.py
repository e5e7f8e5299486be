"""Prepares pictures for a model, and formats the model's answers to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from podline.base.arrays import Array
from podline.base.progress import Reporter
from podline.contract.noise import Floats
from podline.contract.picture_reader import PictureReader, Size
from podline.data.fitting import SQUEEZE
from podline.documents.any_evaluation import EVALUATION
from podline.documents.manifest import Fit, Manifest
from podline.kinds.by_example.kind import ExampleKind
from podline.recipes.kind_table import read_evaluation
from podline.recipes.settings import Recipe
from podline.stages.specs import TrainSpec
from podline.stages.tools import PicturePrediction
from podline.store.contract import Store


@dataclass(frozen=True)
class AnswerReader(PictureReader):
    """Fits pictures into the model's input like the data set's conversion, and formats the model's answers.

    Attributes:
        kind: the kind of the model.
        recipe: the recipe of the model.
        manifest: the manifest of the model's data set.
        threshold: the caller's threshold for the probability of every label, or None.
        thresholds: the threshold of each class, (classes,), if the kind has thresholds.
    """

    kind: ExampleKind[Any]
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
        """The data set's classes."""
        return self.manifest.class_names

    @property
    def fit(self) -> Fit:
        """How the conversion fitted images."""
        found: Any = self.manifest.converter.get("fit", SQUEEZE)
        return found

    def said(self, name: str, place: int, size: Size, answer: Array, most: int | None = None, /) -> PicturePrediction:
        """Return the answer for a picture."""
        picture = PicturePrediction(file=name, width=size[0], height=size[1])
        found = self.kind.prediction(picture, answer, self.recipe, self.manifest, self.thresholds)
        return found if found.classes is None else found.changed(classes=found.classes[:most])


def reader(
    kind: ExampleKind[Any],
    store: Store,
    training: TrainSpec,
    manifest: Manifest,
    threshold: float | None,
    reporter: Reporter,
) -> AnswerReader:
    """Return a reader of a run's answers.

    If the kind has thresholds and ``threshold`` is None, the thresholds are those that the run's evaluation chose, or
    0.5 without an evaluation.
    """
    thresholds = np.empty(0)
    if kind.read_by.has_thresholds:
        thresholds = np.full(len(manifest.class_names), 0.5 if threshold is None else threshold)
        if threshold is None and store.exists(f"{training.folder}/{EVALUATION}"):
            thresholds = kind.thresholds_in(read_evaluation(store, training.folder))
        elif threshold is None:
            reporter.warn("labels need a probability of 50 %, since no evaluation chose thresholds; give --threshold")
    return AnswerReader(kind, training.recipe, manifest, threshold, thresholds)
