"""Computes the measures of a model on the examples that are evaluated during training."""

from __future__ import annotations

from podline.base.arrays import Array
from podline.base.errors import SettingsError
from podline.contract.kind import kind_of
from podline.documents.manifest import Manifest
from podline.recipes.measures import of_kind
from podline.recipes.settings import Recipe


class HeldOutMeasures:
    """The measures that a recipe computes during training, for the log or for a decision.

    Attributes:
        target: the example field with the true values; empty without measures.
    """

    def __init__(self, recipe: Recipe, manifest: Manifest) -> None:
        """Look up the measures.

        Raises:
            SettingsError: the kind has no such measure, or the data set too few classes for it.
        """
        self._recipe, self._kind = recipe, kind_of(recipe)
        known = {
            measure.name: measure
            for measure in (of_kind(recipe.kind) if self._kind.target else ())
            if not manifest.class_names or len(manifest.class_names) >= measure.least_classes
        }
        for name in recipe.held_out_measures:
            if name not in known:
                there = (
                    f"expected loss or {', '.join(known)}" if known else "expected loss: its kind has no measures here"
                )
                raise SettingsError(f"got measure {name!r} for {manifest.dataset}, {there}")
        self._measures = [known[name] for name in recipe.held_out_measures]
        self.target = self._kind.target if self._measures else ""

    def of(self, outputs: Array, targets: Array) -> dict[str, float]:
        """Return each measure by name for a model's outputs and their targets, (n, …).

        Raises:
            SettingsError: a measure raises, or does not return finite numbers.
        """
        return self._kind.measured(outputs, targets, self._measures, self._recipe)
