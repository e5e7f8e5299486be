"""The parameters of flows: the options of :mod:`podline.options` as forms in Prefect's UI.

The most common parameters come first, the others in groups below.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from podline.errors import SettingsError
from podline.options import (
    Choices,
    DataGroup,
    MachineGroup,
    Options,
    RunOptions,
    SearchOptions,
    TrainingGroup,
    TrialOptions,
    same,
)
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.search.spaces import spaces_of

# Data set of a recipe → the sample to draw without a source.
_SAMPLES = {"sample": "sample", "coco": "coco_sample"}


def _group(model: type[Options], title: str) -> Any:
    return Field(default_factory=model, title=title, description=model.__doc__)


class TrainingForm(RunOptions):
    """The parameters of the flow from raw archive to report, for any recipe."""

    model_config = ConfigDict(title="Train")

    training: TrainingGroup = _group(TrainingGroup, "Training")
    data: DataGroup = _group(DataGroup, "Data")
    machine: MachineGroup = _group(MachineGroup, "Machine")

    @classmethod
    def of_options(cls, given: Mapping[str, Any]) -> Self:
        """Return the form with every option of the command line in its group."""
        form: dict[str, Any] = dict(given)
        for group, model in {"training": TrainingGroup, "data": DataGroup, "machine": MachineGroup}.items():
            form[group] = {name: form.pop(name) for name in model.model_fields if name in form}
        return cls.model_validate(form)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        """Refuse values that no single field can check: an invalid value for the recipe, a missing source.

        Raises:
            SettingsError: as on the command line.
        """
        self.training_recipe()
        if not self.source and self.drawn is None:
            raise SettingsError(
                f"the recipe {self.recipe} needs a source: give the folder of its raw data (--source DIR)"
            )
        return self

    @property
    def choices(self) -> Choices:
        """Return the changes to the recipe."""
        return Choices(minutes=self.minutes, epochs=self.epochs, **dict(self.training))

    @property
    def drawn(self) -> str | None:
        """Return the sample to draw instead of a source, or None."""
        return None if self.source else _SAMPLES.get(registry.get(self.recipe).dataset)

    def training_recipe(self) -> Recipe:
        """Return the recipe with these changes, and for the drawn sample if one is drawn.

        Raises:
            SettingsError: the recipe does not exist, or a value is invalid.
        """
        recipe = registry.for_data(registry.get(self.recipe), self.data.name, self.source)
        recipe = registry.override(recipe, self.data.changes() | self.choices.changes())
        return recipe if self.drawn is None else recipe.model_copy(update={"dataset": self.drawn})

    def command(self, root: str) -> str:
        """Return the equivalent command, without repeated stages and promotion."""
        given = self.as_options(but=("recipe", "start_from", "promote")), self.data.as_options()
        recipe, root = map(shlex.quote, (self.recipe, root))
        return f"podline run {recipe} --root {root}{''.join(given)}{self.training.as_options()}"


class _OfRecipe(Options):
    """A recipe with converted data, and changes to it."""

    recipe: str = same(RunOptions, "recipe")
    assignments: tuple[str, ...] = same(TrainingGroup, "assignments")
    root: str = same(MachineGroup, "root")
    name: str = same(DataGroup, "name")

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        self.choices.apply(self.named_recipe)
        return self

    @property
    def named_recipe(self) -> Recipe:
        """Return the unchanged recipe with the name of its data."""
        return registry.for_data(registry.get(self.recipe), self.name, "")

    @property
    def choices(self) -> Choices:
        """Return the changes to the recipe."""
        return Choices(assignments=self.assignments)


class FinderParameters(_OfRecipe, SearchOptions):
    """The parameters of the flow learning_rate_finder."""

    model_config = ConfigDict(title="Find a learning rate")


class SearchParameters(_OfRecipe, TrialOptions):
    """The parameters of the flow search_values."""

    model_config = ConfigDict(title="Search for values")

    @model_validator(mode="after")
    def _has_spaces(self) -> Self:
        spaces_of(self.over, self.choices.apply(self.named_recipe))
        return self
