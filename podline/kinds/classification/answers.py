"""Answers of classifiers for the rules of promotion: read from an evaluation, or asked for now."""

from __future__ import annotations

import keras
import tensorflow as tf

from podline.data.reader import open_split
from podline.documents.any_evaluation import AnyEvaluation
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.judging import ask
from podline.promotion.answers import Answers, JudgedSplit
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class ClassAnswers(Answers):
    """Guesses of classifiers."""

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Guesses:  # noqa: ARG002 (a pose network's says more)
        """Read the guesses in an evaluation's folder."""
        return Guesses.read(store, folder)

    def again(self, examples: JudgedSplit, training: TrainSpec, model: keras.Model) -> Guesses:
        """Ask a classifier about the examples now."""
        manifest, size = examples.manifest, training.recipe.evaluation_batch_size
        reader = open_split(examples.store, examples.folder, manifest, examples.split)
        return ask(model, tf.distribute.get_strategy(), reader, manifest, size, examples.reporter).guesses()

    def part(self, examples: JudgedSplit, said: Guesses) -> Guesses:
        """Return the guesses of the examples that count."""
        return said if examples.places is None else said.at(examples.places)

    def judged(self, examples: JudgedSplit, said: Guesses) -> Guesses:  # noqa: ARG002 (a pose network needs the truth)
        """Return the guesses."""
        return said

    def main(self, examples: JudgedSplit, said: Guesses) -> float:  # noqa: ARG002 (as above)
        """Return the accuracy."""
        return float(said.right.mean())
