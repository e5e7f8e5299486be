"""What a kind of task answers for a promotion: a model judged on a split, and two of them example by example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from podline.documents.manifest import Manifest
from podline.progress import Reporter
from podline.promotion.rules import Guarded, ModelFigures, Paired
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


@dataclass(frozen=True)
class JudgedModel:
    """A model on the candidate's examples.

    Attributes:
        figures: how good it is.
        said: what it said of each example: guesses, or the people found.
    """

    figures: ModelFigures
    said: Any


class ModelComparison(Protocol):
    """Two models of a kind of task for the rules of promotion."""

    def left(self, store: Store, folder: str, evaluation: Any) -> JudgedModel:
        """A model as the evaluation in a folder left it."""
        ...

    def anew(self, examples: JudgedSplit, training: TrainSpec, model: Any) -> JudgedModel:
        """A model judged on the examples now."""
        ...

    def part(self, examples: JudgedSplit, model: JudgedModel) -> JudgedModel:
        """A model that was judged on the whole split, on the examples that count."""
        ...

    def paired(
        self, examples: JudgedSplit, before: JudgedModel, after: JudgedModel, rules: PromotionSettings
    ) -> Paired:
        """Two models on the same examples, one by one."""
        ...

    def guarded(
        self, examples: JudgedSplit, before: JudgedModel, after: JudgedModel, rules: PromotionSettings
    ) -> list[Guarded]:
        """The measures that ``promotion.guards`` names, of both models.

        Raises:
            SettingsError: a name is no measure of this kind of which more is better.
        """
        ...
