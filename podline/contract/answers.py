"""The contract by which a kind of task provides models' answers to the examples of a split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from podline.base.arrays import Image
from podline.base.frozen import Frozen
from podline.base.progress import Reporter
from podline.documents.any_evaluation import AnyEvaluation
from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class CommonExamples:
    """The examples on which models are compared.

    Attributes:
        store: the store.
        folder: folder of the data set.
        manifest: manifest of the data set.
        split: name of the split.
        reporter: reports progress.
        places: places of the compared examples in the split, int64, (n,); None for all.
    """

    store: Store
    folder: str
    manifest: Manifest
    split: str
    reporter: Reporter
    places: npt.NDArray[np.int64] | None = None

    @property
    def checksums(self) -> tuple[str, ...]:
        """The split's checksums, which are equal for splits with the same records in the same order."""
        found = self.manifest.split(self.split)
        shards = (found.content,) if found.content else (shard.sha256 for shard in found.shards)
        return (*shards, *((found.truth.sha256,) if found.truth else ()))


Left = TypeVar("Left")
Formed = TypeVar("Formed")


class Answers(ABC, Generic[Left, Formed]):
    """The answers of a kind's models: classes for a classifier, people as COCO results for a pose network.

    Its parameters are the type of stored answers, and that of the answers that rules compare.
    """

    @abstractmethod
    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Left:
        """Read a model's answers from an evaluation's folder."""

    @abstractmethod
    def again(self, examples: CommonExamples, training: TrainSpec, model: Callable[..., Any]) -> Left:
        """Run a model on the compared examples.

        Args:
            examples: the compared examples.
            training: the spec of the model's training.
            model: a Keras model, or a function with the same interface.
        """

    @abstractmethod
    def part(self, examples: CommonExamples, answers: Left) -> Left:
        """Return the answers for the compared examples."""

    @abstractmethod
    def judged(self, examples: CommonExamples, answers: Left) -> Formed:
        """Return the answers in the form of :class:`podline.contract.rules.Compared`."""

    @abstractmethod
    def main(self, examples: CommonExamples, answers: Left) -> Metric:
        """Return the main metric on the compared examples, with its interval."""

    def differing(self, one: Left, other: Left) -> int | None:  # noqa: ARG002 (None unless answers are single values)
        """Return the number of examples that two models answer differently; None if answers are not single values."""
        return None


AnyAnswers: TypeAlias = Answers[Any, Any]
"""The answers of a kind that is known by its name only."""


class LostExample(Frozen):
    """An example that only the other run gets right, or an image in which it finds more joints.

    Attributes:
        record: its place in the split, for :meth:`podline.data.reader.SplitReader.gather`.
        name: its class, or COCO's id of the image.
        before: the other run's answer.
        after: this run's answer.
    """

    record: int
    name: str
    before: str
    after: str


class LostExamples(NamedTuple):
    """The examples that only the first model got right.

    Attributes:
        lost: number of these examples, or people.
        gained: number that only the second model got right.
        examples: some of the lost examples.
        pictures: per example, uint8 (height, width, channels): the image, or one picture with the result of each model.
    """

    lost: int
    gained: int
    examples: list[LostExample]
    pictures: list[tuple[Image, ...]]
