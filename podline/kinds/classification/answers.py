"""Provides classifiers' answers for promotion rules: from an evaluation, or by running the model."""

from __future__ import annotations

import keras
import tensorflow as tf

from podline.compare.answers import Examples
from podline.data.reader import open_split
from podline.documents.metric import Metric
from podline.intervals import wilson_interval
from podline.kinds.by_example.answers import ExampleAnswers
from podline.kinds.classification.guesses import Guesses
from podline.kinds.classification.judging import ask
from podline.stages.specs import TrainSpec


class ClassAnswers(ExampleAnswers[Guesses]):
    """Answers of classifiers."""

    read_by = Guesses

    def again(self, examples: Examples, training: TrainSpec, model: keras.Model) -> Guesses:
        """Run a classifier on the examples."""
        manifest, size = examples.manifest, training.recipe.evaluation_batch_size
        reader = open_split(examples.store, examples.folder, manifest, examples.split)
        strategy, places = tf.distribute.get_strategy(), examples.places
        return ask(model, strategy, reader, manifest, size, examples.reporter, places).guesses()

    def main(self, examples: Examples, answers: Guesses) -> Metric:
        """Return the accuracy."""
        return wilson_interval(int(answers.right.sum()), len(answers.right))
