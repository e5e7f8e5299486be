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
    """The input of an evaluation: a run's model with random weights and after training, on a data set.

    Attributes:
        problems: why measures of installed packages are left out; a judge adds to them.
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
        """Return the first fields of the evaluation: the run and its data."""
        return self.spec.model_dump(include=RunEvaluation.model_fields.keys() - {"kind"})


@dataclass(frozen=True)
class Judgement:
    """The output of an evaluation.

    Attributes:
        document: all figures; ``evaluation.json``.
        files: contents of further files beside it, by name.
        notes: further figures for people, a line each.
    """

    document: AnyEvaluation
    files: dict[str, bytes]
    notes: tuple[str, ...] = ()
