"""Answers of classifiers for the rules of promotion: read from an evaluation, or asked for now."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar, cast

import keras
import tensorflow as tf

from podline.data.reader import open_split
from podline.documents.any_evaluation import AnyEvaluation
from podline.evaluation.per_example import PerExample
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.judging import ask
from podline.promotion.answers import Answers, JudgedSplit
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

Said = TypeVar("Said", bound=PerExample)


class ExampleAnswers(Answers, Generic[Said]):
    """Answers with an entry for each example."""

    said: ClassVar[type[PerExample]]

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Said:
        """Read the answers in an evaluation's folder."""
        return cast(Said, self.said.read(store, folder))

    def part(self, examples: JudgedSplit, said: Said) -> Said:
        """Return the answers of the examples that count."""
        return said if examples.places is None else said.at(examples.places)

    def judged(self, examples: JudgedSplit, said: Said) -> Said:
        """Return the answers."""
        return said


class ClassAnswers(ExampleAnswers[Guesses]):
    """Guesses of classifiers."""

    said = Guesses

    def again(self, examples: JudgedSplit, training: TrainSpec, model: keras.Model) -> Guesses:
        """Ask a classifier about the examples now."""
        manifest, size = examples.manifest, training.recipe.evaluation_batch_size
        reader = open_split(examples.store, examples.folder, manifest, examples.split)
        return ask(model, tf.distribute.get_strategy(), reader, manifest, size, examples.reporter).guesses()

    def main(self, examples: JudgedSplit, said: Guesses) -> float:
        """Return the accuracy."""
        return float(said.right.mean())
