"""Provides a model's answers for promotion rules: from an evaluation, or by running the model."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar, cast

import keras

from podline.compare.answers import Answers, Examples
from podline.data.reader import open_split
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.metric import Metric
from podline.evaluation.per_example import PerExample
from podline.kinds.by_example.answered import Answered
from podline.kinds.by_example.judging import answered
from podline.kinds.by_example.kind import ExampleKind
from podline.kinds.by_example.measures import figure_of
from podline.measures import measure_named
from podline.stages.specs import TrainSpec
from podline.store.contract import Store

Said = TypeVar("Said", bound=PerExample)


class ExampleAnswers(Answers, Generic[Said]):
    """Answers with one entry per example."""

    read_by: ClassVar[type[PerExample]]

    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Said:
        """Read the answers from an evaluation's folder."""
        return cast(Said, self.read_by.read(store, folder))

    def part(self, examples: Examples, answers: Said) -> Said:
        """Return the answers for the judged examples."""
        return answers if examples.places is None else answers.at(examples.places)

    def judged(self, examples: Examples, answers: Said) -> Said:
        """Return the answers themselves, which need no further step."""
        return answers

    def differing(self, one: Said, other: Said) -> int | None:
        """Return the number of examples that two models answer differently."""
        return int((one.decided != other.decided).reshape(len(one.labels), -1).any(axis=1).sum())


class KindAnswers(ExampleAnswers[Answered]):
    """Answers of a kind's models."""

    read_by = Answered

    def __init__(self, kind: ExampleKind) -> None:
        self._kind = kind

    def again(self, examples: Examples, training: TrainSpec, model: keras.Model) -> Answered:
        """Run a model on the examples."""
        reader = open_split(examples.store, examples.folder, examples.manifest, examples.split)
        manifest, reporter = examples.manifest, examples.reporter
        return answered(self._kind, training.recipe, model, reader, manifest, reporter, examples.places)

    def main(self, examples: Examples, answers: Answered) -> Metric:
        """Return the main measure."""
        return figure_of(measure_named(self._kind.measure), answers)
