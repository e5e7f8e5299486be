"""Provides scores for promotion rules: from an evaluation, or by running the model."""

from __future__ import annotations

import keras

from podline.compare.answers import Examples
from podline.data.reader import open_split
from podline.documents.metric import Metric
from podline.kinds.by_example.answers import ExampleAnswers
from podline.kinds.labels.judging import scores_of
from podline.kinds.labels.scores import Scores
from podline.stages.specs import TrainSpec


class LabelAnswers(ExampleAnswers[Scores]):
    """Scores of models with several labels."""

    read_by = Scores

    def again(self, examples: Examples, training: TrainSpec, model: keras.Model) -> Scores:
        """Run a model on the examples."""
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        manifest, reporter = examples.manifest, examples.reporter
        return scores_of(model, examples.store, training, reader, manifest, reporter, examples.places)

    def main(self, examples: Examples, answers: Scores) -> Metric:
        """Return the mAP."""
        return answers.mean_precision().metric()
