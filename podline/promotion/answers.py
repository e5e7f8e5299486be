"""The contract by which a kind of task gives models' answers for the examples of a split."""

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
    """The examples that models were judged on.

    Attributes:
        store: the store.
        folder: of the data set.
        manifest: of the data set.
        split: which split.
        reporter: told of progress.
        places: of those in the split that count, int64, (n,); None if all do.
    """

    store: Store
    folder: str
    manifest: Manifest
    split: str
    reporter: Reporter
    places: npt.NDArray[np.int64] | None = None


class Answers(Protocol):
    """Answers of models of a kind: a classifier's are guesses, a pose network's are people as COCO results."""

    def left(self, store: Store, folder: str, evaluation: Any) -> Any:
        """Return a model's answers, as the evaluation in a folder left them."""
        ...

    def again(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> Any:
        """Return a model's answers for the examples that count, now.

        Args:
            examples: which.
            training: what the model was trained with.
            model: a Keras model, or a function of the same form.
        """
        ...

    def part(self, examples: JudgedSplit, said: Any) -> Any:
        """Return the answers for the examples that count."""
        ...

    def judged(self, examples: JudgedSplit, said: Any) -> Any:
        """Return the answers as :class:`podline.promotion.figure.Pair` holds them."""
        ...

    def main(self, examples: JudgedSplit, said: Any) -> Metric:
        """Return the metric that counts, with its interval, on the examples that count."""
        ...

    def differing(self, one: Any, other: Any) -> int | None:  # noqa: ARG002 (of answers that are no single values)
        """Return how many examples two models answer differently; None where answers are no single values."""
        return None
