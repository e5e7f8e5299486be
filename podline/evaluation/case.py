"""The input and output of an evaluation, for every kind of task."""

from __future__ import annotations

from dataclasses import dataclass

import keras
import tensorflow as tf

from podline.documents.any_evaluation import AnyEvaluation, RunEvaluation
from podline.documents.manifest import Manifest
from podline.frozen import JsonObject
from podline.progress import Reporter
from podline.recipes.settings import Recipe
from podline.stages.specs import EvaluateSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class Case:
    """The input of an evaluation: a run's model before and after training, on a data set."""

    spec: EvaluateSpec
    recipe: Recipe
    before: keras.Model
    after: keras.Model
    strategy: tf.distribute.Strategy
    store: Store
    manifest: Manifest
    reporter: Reporter

    def of_run(self) -> JsonObject:
        """Return the first fields of the evaluation: the run and its data."""
        return self.spec.model_dump(include=RunEvaluation.model_fields.keys() - {"kind"})


@dataclass(frozen=True)
class Judgement:
    """The output of an evaluation.

    Attributes:
        document: all figures; ``evaluation.json``.
        files: contents of further files beside it, by name.
        warning: a warning for people, or empty.
        notes: further figures for people, a line each.
        failure: why the model fails its check, with remedies; empty if it passes.
    """

    document: AnyEvaluation
    files: dict[str, bytes]
    warning: str = ""
    notes: tuple[str, ...] = ()
    failure: str = ""
