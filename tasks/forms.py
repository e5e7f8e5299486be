"""The parameters of flows: :mod:`podline.stages.options` as forms in Prefect's UI, and how forms are read.

The most common parameters come first, the others in groups below. Imports no Prefect, see
:mod:`podline.tasks.sources`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from podline.base.errors import SettingsError
from podline.base.frozen import problem_in
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.search.spaces import spaces_of
from podline.settings.machine import nearest
from podline.stages.options import (
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

# Data set of a recipe → the synthetic data set to generate if no source is given.
_SAMPLES = {"sample": "sample", "coco": "coco_sample"}


def _group(model: type[Options], title: str) -> Any:
    return Field(default_factory=model, title=title, description=model.__doc__)


class TrainingForm(RunOptions):
    """The parameters of the flow from raw data to report, for any recipe."""

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
        """Check fields together: refuse an invalid value of the recipe or a missing source.

        Raises:
            SettingsError: as on the command line.
        """
        self.training_recipe()
        if not self.source and self.drawn is None:
            raise SettingsError(
                f"the recipe {self.recipe} needs a source: give the folder or the file of its raw data (--source)"
            )
        return self

    @property
    def choices(self) -> Choices:
        """Return the changes to the recipe."""
        return Choices(minutes=self.minutes, epochs=self.epochs, **dict(self.training))

    @property
    def drawn(self) -> str | None:
        """Return the name of the synthetic data set to generate, or None if a source is given or needed."""
        return None if self.source else _SAMPLES.get(registry.get(self.recipe).dataset)

    def training_recipe(self) -> Recipe:
        """Return the recipe with these changes, on the synthetic data set if one is generated.

        Raises:
            SettingsError: the recipe does not exist, or a value is invalid.
        """
        recipe = registry.for_data(registry.get(self.recipe), self.data.name, self.source)
        recipe = registry.override(recipe, self.data.changes() | self.choices.changes())
        return recipe if self.drawn is None else recipe.model_copy(update={"dataset": self.drawn})

    def command(self, root: str) -> str:
        """Return the equivalent command, without the options of repeated stages, promotion and machine."""
        given = self.as_options(but=("recipe", "start_from", "promote")), self.data.as_options()
        recipe, root = map(shlex.quote, (self.recipe, root))
        return f"podline run {recipe} --root {root}{''.join(given)}{self.training.as_options()}"


class _OfRecipe(Options):
    """The parameters of a flow on converted data: a recipe, and changes of its values."""

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
        """Return the recipe before the changes, named after the user's data if a name is given."""
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


F = TypeVar("F", bound=BaseModel)


def read_form(form: type[F], given: Any) -> F:
    """Parse a form's values.

    Args:
        form: the form's model.
        given: the model, or its saved values.

    Raises:
        SettingsError: a value is invalid; the message has the title or the option of its field.
    """
    try:
        return form.model_validate(given)
    except ValidationError as error:
        raise SettingsError(problem_of(form, error)) from None


def problem_of(form: type[BaseModel], error: ValidationError) -> str:
    """Return the first problem of a form, with the title of its field."""
    problem = problem_in(error)
    model, titles = form, list[str]()
    for name in problem.loc:
        field = model.model_fields.get(name) if isinstance(name, str) and model else None
        if field is None:
            known = {key: str(other.title) for key, other in model.model_fields.items()}
            if isinstance(name, str) and problem.type == "extra_forbidden":
                return f"there is no field {name!r}; {nearest(name, known)}"
            break
        titles.append(str(field.title))
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return f"{', '.join(titles)} = {problem.input!r}: {problem.msg}"
