"""Scores for the rules of promotion: read from an evaluation, or asked for now."""

from __future__ import annotations

import keras

from podline.data.reader import open_split
from podline.documents.any_evaluation import AnyEvaluation
from podline.kinds.classification.answers import ExampleAnswers
from podline.kinds.labels.judging import scores_of
from podline.kinds.labels.scores import Scores
from podline.kinds.table import read_evaluation
from podline.promotion.answers import JudgedSplit
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class LabelAnswers(ExampleAnswers[Scores]):
    """Scores of models of several labels."""

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Scores:  # noqa: ARG002 (a pose network's says more)
        """Read the scores in an evaluation's folder."""
        return Scores.read(store, folder)

    def again(self, examples: JudgedSplit, training: TrainSpec, model: keras.Model) -> Scores:
        """Ask a model about the examples now."""
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        return scores_of(
            model, reader, training, read_evaluation(examples.store, training.folder), examples.reporter
        )

    def main(self, examples: JudgedSplit, said: Scores) -> float:  # noqa: ARG002 (a pose network needs the truth)
        """Return the mAP."""
        return said.mean_precision().value
