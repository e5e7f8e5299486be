"""What a kind of task answers for a promotion: what a model said of a split, and the figures of several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from podline.documents.manifest import Manifest
from podline.progress import Reporter
from podline.promotion.rules import Figure
from podline.recipes.promotion_settings import PromotionSettings
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


class ModelComparison(Protocol):
    """Models of a kind of task for the rules of promotion. What a model said are guesses, or the people it found."""

    def left(self, store: Store, folder: str, evaluation: Any) -> Any:
        """Return what a model said, as the evaluation in a folder left it."""
        ...

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> Any:
        """Return what a model says of the examples now."""
        ...

    def part(self, examples: JudgedSplit, said: Any) -> Any:
        """Return what a model said of the examples that count."""
        ...

    def main(self, examples: JudgedSplit, said: Any) -> float:
        """Return the metric that counts, on the examples that count."""
        ...

    def figures(
        self, examples: JudgedSplit, known: Sequence[Any], candidate: Any, settings: PromotionSettings
    ) -> list[Figure]:
        """Return the figures of a candidate beside the known trainings, the reference first.

        Raises:
            SettingsError: ``promotion.guards`` names no measure of this kind.
        """
        ...
