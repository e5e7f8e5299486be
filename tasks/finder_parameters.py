"""The form of the learning-rate finder's flow; see :mod:`podline.tasks.parameters`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.choices import Choices
from podline.recipes.settings import Recipe
from podline.tasks.parameters import offer_recipes, place


class FinderParameters(BaseModel):
    """The flow learning_rate_finder."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Find a learning rate")

    recipe: str = Field(
        default="sample",
        title="Recipe",
        description="What to find a rate for; its data set must be converted already.",
        json_schema_extra=offer_recipes,
    )
    low: float = Field(
        default=1e-5, gt=0, le=1_000, title="Lowest rate", description="Of the first step.", json_schema_extra=place(1)
    )
    high: float = Field(
        default=10.0, gt=0, le=1_000, title="Highest rate", description="Of the last step.", json_schema_extra=place(2)
    )
    steps: int = Field(
        default=300,
        ge=20,
        le=100_000,
        title="Steps",
        description="From the lowest rate to the highest one; more of them give a smoother curve.",
        json_schema_extra=place(3),
    )
    run: str = Field(
        default="",
        title="Run",
        description="Begin from the newest checkpoint of this run, which is only read. Empty: from fresh weights.",
        json_schema_extra=place(4),
    )
    assignments: tuple[str, ...] = Field(
        default=(),
        title="Other values of the recipe",
        description="Each as path=value, like optimizer.kind=adam or batch_size=512.",
        json_schema_extra=place(5),
    )
    root: str = Field(
        default="",
        title="Store",
        description="The folder where data sets and runs are. Empty: the worker's setting root.",
        json_schema_extra=place(6),
    )
    name: str = Field(
        default="",
        title="Name",
        description="Of images of your own, as their data set is called after the dot: flowers, of images.flowers.",
        json_schema_extra=place(7),
    )

    @model_validator(mode="after")
    def _can_be(self) -> FinderParameters:
        if self.low >= self.high:
            raise SettingsError(
                f"Lowest rate {self.low:g} vs Highest rate {self.high:g}: the lowest must be below the highest"
            )
        self.choices.apply(self.named_recipe)
        return self

    @property
    def named_recipe(self) -> Recipe:
        """The recipe as it is written, with the name of its data."""
        return registry.for_data(registry.get(self.recipe), self.name, "")

    @property
    def choices(self) -> Choices:
        """What is to be changed in the recipe."""
        return Choices(assignments=self.assignments)
