"""A kind of task: one number for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from podline.kinds.by_example.document import ExampleEvaluation
from podline.kinds.by_example.kind import ExampleKind
from podline.measures import Measure
from podline.recipes.task import TaskSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from number_kind.objective import Nearness
    from number_kind.records import NumberTargets
    from podline.arrays import Array
    from podline.documents.manifest import Manifest
    from podline.kinds.by_example.answered import Answered
    from podline.recipes.settings import Recipe
    from podline.reporting.sections import Section


class NumberSettings(TaskSettings):
    """The section ``task`` of a recipe.

    Attributes:
        unit: the network answers in multiples of it; about the spread of the numbers.
    """

    common = ("model", "augmentation")
    kind: str = "number"
    unit: float = Field(default=1.0, gt=0)


class NumberEvaluation(ExampleEvaluation):
    """The model of ``evaluation.json``."""

    measure = "mae"


class Number(ExampleKind):
    """One number for each image."""

    name = "number"
    settings = NumberSettings
    document = NumberEvaluation
    target = "number"

    def outputs(self, classes: int) -> int:
        """Return one output."""
        return 1

    def targets(self) -> NumberTargets:
        """Return what a record holds: a number."""
        from number_kind.records import NumberTargets

        return NumberTargets()

    def objective(self, recipe: Recipe, manifest: Manifest) -> Nearness:
        """Return what is trained for: small errors."""
        from number_kind.objective import Nearness

        return Nearness(NumberSettings.of(recipe).unit)

    def decoded(self, outputs: Array, recipe: Recipe) -> Array:
        """Return the numbers, (n,)."""
        return outputs[:, 0].astype(np.float64) * NumberSettings.of(recipe).unit

    def guesses(self, labels: Array) -> Array:
        """Return the median for every image: no other constant has a smaller mean absolute error."""
        return np.full(len(labels), np.median(labels))

    def sections(self) -> Iterable[Section]:
        """Return the table of figures, and a scatter plot."""
        from number_kind.sections import scatter

        return (*super().sections(), scatter)


def r2(said: Answered) -> Any:
    """Return the share of the numbers' variance that the answers explain."""
    return 1 - ((said.answers - said.labels) ** 2).sum() / max(((said.labels - said.labels.mean()) ** 2).sum(), 1e-30)


MAE = Measure(
    "mae",
    "mean absolute error",
    kind="number",
    higher_is_better=False,
    in_units=True,
    compute=lambda said: abs(said.answers - said.labels),
)
R2 = Measure("r2", "R²", kind="number", compute=r2)
