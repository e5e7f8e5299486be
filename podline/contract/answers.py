"""The interface by which a kind of task provides the answers (predictions) of models for a split's examples."""

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
        folder: folder of the data set.
        places: indices of the compared examples in the split, int64, (n,); None for all examples.
    """

    store: Store
    folder: str
    manifest: Manifest
    split: str
    reporter: Reporter
    places: npt.NDArray[np.int64] | None = None

    @property
    def checksums(self) -> tuple[str, ...]:
        """Checksums of the split; two splits have equal checksums if their records and the order are the same."""
        found = self.manifest.split(self.split)
        shards = (found.content,) if found.content else (shard.sha256 for shard in found.shards)
        return (*shards, *((found.truth.sha256,) if found.truth else ()))


Left = TypeVar("Left")
Formed = TypeVar("Formed")


class Answers(ABC, Generic[Left, Formed]):
    """Reads and computes the answers of a kind's models: classes for a classifier, COCO results for a pose network.

    The type parameters are the type of stored answers, and the type of answers that promotion rules compare.
    """

    @abstractmethod
    def left(self, store: Store, folder: str, evaluation: AnyEvaluation) -> Left:
        """Read a model's answers from an evaluation's folder."""

    @abstractmethod
    def again(self, examples: CommonExamples, training: TrainSpec, model: Callable[..., Any]) -> Left:
        """Run a model, a Keras model or a function with the same interface, on the compared examples."""

    @abstractmethod
    def part(self, examples: CommonExamples, answers: Left) -> Left:
        """Select the answers for the compared examples from the answers for the whole split."""

    @abstractmethod
    def judged(self, examples: CommonExamples, answers: Left) -> Formed:
        """Convert stored answers to the type that :class:`podline.contract.rules.Compared` takes."""

    @abstractmethod
    def main(self, examples: CommonExamples, answers: Left) -> Metric:
        """Return the main metric on the compared examples, with its interval."""

    def differing(self, one: Left, other: Left) -> int | None:  # noqa: ARG002 (None unless answers are single values)
        """Return the number of examples for which two models' answers differ; None if answers are not single values."""
        return None


AnyAnswers: TypeAlias = Answers[Any, Any]
"""The answers of any kind of task."""


class LostExample(Frozen):
    """An example that only the first of two compared models gets right, or an image in which it finds more joints.

    Attributes:
        record: index of the example in the split, for :meth:`podline.data.reader.SplitReader.gather`.
        name: the example's target as text, such as its class, or ``image`` with COCO's id.
        before: the first model's answer.
        after: the second model's answer.
    """

    record: int
    name: str
    before: str
    after: str


class LostExamples(NamedTuple):
    """The examples that only the first model got right.

    Attributes:
        lost: number of examples (or people) that only the first model got right.
        gained: number of examples (or people) that only the second model got right.
        examples: some of the lost examples; for poses, the images that lost the most joints.
        pictures: for each of ``examples``, the image, or one picture for each model's answer: uint8 (height, width,
            channels).
    """

    lost: int
    gained: int
    examples: list[LostExample]
    pictures: list[tuple[Image, ...]]
