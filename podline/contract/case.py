"""The input and output of an evaluation, for every kind of task."""

# pyright: standard
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tensorflow as tf

from podline.base.arrays import Tensor
from podline.base.frozen import JsonObject
from podline.base.progress import Reporter
from podline.documents.any_evaluation import AnyEvaluation, RunEvaluation
from podline.documents.manifest import Manifest
from podline.recipes.settings import Recipe
from podline.stages.specs import EvaluateSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class Case:
    """The input of an evaluation.

    Attributes:
        before: the model with random weights.
        after: the trained model.
        strategy: the strategy under which the models run.
        problems: errors of measures of installed packages, which are then omitted; ``Kind.judge`` adds to this set.
    """

    spec: EvaluateSpec
    recipe: Recipe
    before: Callable[..., Tensor]
    after: Callable[..., Tensor]
    strategy: tf.distribute.Strategy
    store: Store
    manifest: Manifest
    reporter: Reporter
    problems: set[str] = field(default_factory=set[str])

    def of_run(self) -> JsonObject:
        """Return the fields of ``evaluation.json`` that identify the run and its data."""
        return self.spec.model_dump(include=RunEvaluation.model_fields.keys() - {"kind"})


@dataclass(frozen=True)
class Judgement:
    """The output of an evaluation.

    Attributes:
        document: the content of ``evaluation.json``.
        files: name → content of further files in the same folder.
        notes: further results as lines of text, for the log.
    """

    document: AnyEvaluation
    files: dict[str, bytes]
    notes: tuple[str, ...] = ()
