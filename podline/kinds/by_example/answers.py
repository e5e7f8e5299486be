"""Provides a model's answers to promotion rules: from an evaluation, or by running the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from podline.base.arrays import Tensor
from podline.contract.answers import Answers, CommonExamples
from podline.data.reader import open_split
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.metric import Metric
from podline.kinds.by_example.hooks import A, ExampleHooks
from podline.kinds.by_example.measures import figure_of
from podline.recipes.measures import measure_named
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


class ExampleAnswers(Answers[A, A], Generic[A]):
    """Answers with one entry per example."""

    def __init__(self, kind: ExampleHooks[A]) -> None:
        self._kind = kind

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> A:
        """Read the answers from an evaluation's folder."""
        return self._kind.read_by.read(store, folder)

    def again(self, examples: CommonExamples, training: TrainSpec, model: Callable[..., Tensor]) -> A:
        """Run a model on the examples; return the answers, with the thresholds that the model's evaluation chose."""
        from podline.kinds.by_example.judging import answered, at_its_thresholds

        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        manifest, reporter = examples.manifest, examples.reporter
        found = answered(self._kind, training.recipe, model, reader, manifest, reporter, examples.places)
        return at_its_thresholds(self._kind, found, examples.store, training.folder)

    def part(self, examples: CommonExamples, answers: A) -> A:
        """Return the answers for the compared examples."""
        return answers if examples.places is None else answers.at(examples.places)

    def judged(self, examples: CommonExamples, answers: A) -> A:
        """Return the answers unchanged: the rules of these kinds read them directly."""
        return answers

    def main(self, examples: CommonExamples, answers: A) -> Metric:
        """Return the kind's main measure, with its interval."""
        return figure_of(measure_named(self._kind.measure), answers)

    def differing(self, one: A, other: A) -> int:
        """Return the number of examples that two models answer differently."""
        return int((one.decided != other.decided).reshape(len(one.labels), -1).any(axis=1).sum())
