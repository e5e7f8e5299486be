"""The contract by which a kind of task provides models' answers to the examples of a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from podline.documents.manifest import Manifest
from podline.documents.metric import Metric
from podline.progress import Reporter
from podline.stages.specs import TrainSpec
from podline.store.contract import Store


@dataclass(frozen=True)
class JudgedSplit:
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


class Answers(Protocol):
    """The answers of a kind's models: classes for a classifier, people as COCO results for a pose network."""

    def left(self, store: Store, folder: str, evaluation: Any) -> Any:
        """Read a model's answers from an evaluation's folder."""
        ...

    def again(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> Any:
        """Run a model on the compared examples.

        Args:
            examples: the compared examples.
            training: the spec of the model's training.
            model: a Keras model, or a function with the same interface.
        """
        ...

    def part(self, examples: JudgedSplit, said: Any) -> Any:
        """Return the answers for the compared examples."""
        ...

    def judged(self, examples: JudgedSplit, said: Any) -> Any:
        """Return the answers in the form of :class:`podline.promotion.figure.Pair`."""
        ...

    def main(self, examples: JudgedSplit, said: Any) -> Metric:
        """Return the main metric on the compared examples, with its interval."""
        ...

    def differing(self, one: Any, other: Any) -> int | None:  # noqa: ARG002 (None unless answers are single values)
        """Return the number of examples that two models answer differently; None if answers are not single values."""
        return None
