"""The parameters of the training flow: pydantic models, which become the form in Prefect's UI.

What most people set comes first, the rest in groups below. There are no unions, which the form shows badly: a zero or
"as the recipe says" leaves a value as it is. The text of each field is the help that stands beside it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from podline import engines, strategies
from podline.errors import SettingsError
from podline.recipes import registry
from podline.recipes.choices import Choices
from podline.recipes.parts import MODELS
from podline.recipes.settings import Recipe
from podline.settings import nearest
from podline.stages.specs import LEFT_OUT
from podline.stages.table import again_from

_AS_WRITTEN = "as the recipe says"
_NOT_DONE = "what is not done"
# An address with a user or a password: a run's parameters can be read by all who see the run.
_NO_LOGIN = "^(?!.*://[^/]*@)"
# Data set of a recipe → the sample that is drawn where no source is named.
_SAMPLES = {"sample": "sample", "coco": "coco_sample"}


def place(position: int, **more: Any) -> dict[str, Any]:
    """Return where in the form a field stands, and what else its schema says."""
    return {"position": position, **more}


def offer_recipes(schema: dict[str, Any]) -> None:
    """Put the recipes that there are at deployment into a field's schema, as pydantic writes a Literal."""
    schema.update(place(0, enum=list(registry.names())))


def offer_models(schema: dict[str, Any]) -> None:
    """Put the kinds of networks that there are at deployment into a field's schema."""
    schema.update(place(0, enum=[_AS_WRITTEN, *MODELS.names()]))


def offer_stages(schema: dict[str, Any]) -> None:
    """Put the stages that there are at deployment into a field's schema."""
    schema.update(place(5, enum=[_NOT_DONE, *again_from()]))


class TrainingGroup(BaseModel, frozen=True):
    """How it is trained, where that is not as the recipe says."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        default=_AS_WRITTEN,
        title="Model",
        description="The kind of network; of recipes that classify.",
        json_schema_extra=offer_models,
    )
    steps: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        title="Steps",
        description="Batches to train on, in place of Epochs; 0: as the recipe says.",
        json_schema_extra=place(1),
    )
    examples: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000_000,
        title="Examples",
        description="Examples to train on, in place of Epochs; 0: as the recipe says.",
        json_schema_extra=place(2),
    )
    batch_size: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        title="Batch size",
        description="Examples in a step, over all devices; 0: as the recipe says.",
        json_schema_extra=place(3),
    )
    learning_rate: float = Field(
        default=0,
        ge=0,
        le=1_000,
        title="Learning rate",
        description="The peak of the schedule; 0: as the recipe says.",
        json_schema_extra=place(4),
    )
    schedule: Literal["as the recipe says", "constant", "exponential", "cosine", "one_cycle", "plateau"] = Field(
        default=_AS_WRITTEN,
        title="Schedule",
        description="How the learning rate changes. Plateau lowers it when validation stalls, and needs examples to be "
        "held out for that: validation_share=0.1 under the other values.",
        json_schema_extra=place(5),
    )
    seed: int = Field(
        default=-1,
        ge=-1,
        title="Seed",
        description="Of weights, order, augmentation and dropout; -1: as the recipe says.",
        json_schema_extra=place(6),
    )
    further: str = Field(
        default="",
        title="Train further",
        description="The name of a finished run in the same store: its state is what this one begins with.",
        json_schema_extra=place(7),
    )
    init: str = Field(
        default="",
        title="Weights to begin with",
        description="A .keras, .h5 or .npz file or a SavedModel's folder on the worker's machine: layers of the same "
        "name and shape begin with its weights.",
        json_schema_extra=place(8),
    )
    assignments: tuple[str, ...] = Field(
        default=(),
        title="Other values of the recipe",
        description="Each as path=value, like augmentation.cutout=8.",
        json_schema_extra=place(9),
    )


class DataGroup(BaseModel, frozen=True):
    """How the raw data become records."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        default="",
        title="Name",
        description="What images or keypoints of your own are called in the store: flowers makes data set and recipe "
        "images.flowers. Empty: as the source's folder is called.",
        json_schema_extra=place(0),
    )
    keep_files: bool = Field(
        default=False,
        title="Keep image files",
        description="Records of images and keypoints hold the images' own files, not decoded pixels: smaller, decoded "
        "at each reading, and the very same arrays.",
        json_schema_extra=place(1),
    )
    allow_left_out: float = Field(
        default=LEFT_OUT,
        ge=0,
        le=1,
        title="Allow left out",
        description="The share of the source's records, or of its people, that may be left out; more is an error, "
        "which names the reasons.",
        json_schema_extra=place(2),
    )


class MachineGroup(BaseModel, frozen=True):
    """Where it is done; the result does not depend on it."""

    model_config = ConfigDict(extra="forbid")

    root: str = Field(
        default="",
        title="Store",
        description="The folder where data sets, runs and reports go. Empty: the worker's setting root.",
        json_schema_extra=place(0),
    )
    strategy: str = Field(
        default="",
        pattern=f"^({strategies.PATTERN})?$",
        title="Strategy",
        description=f"Where the model runs: {strategies.NAMES}. Empty: the worker's setting.",
        json_schema_extra=place(1),
    )
    engine: str = Field(
        default="",
        pattern=f"^({engines.PATTERN})?$",
        title="Engine",
        description=f"Where the conversion runs: {engines.NAMES}; see docs/engines.md. Empty: the worker's setting.",
        json_schema_extra=place(2),
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=1024,
        title="Conversion workers",
        description="Processes of the engine local that write shards; 0: the worker's setting.",
        json_schema_extra=place(3),
    )
    beam_options: tuple[str, ...] = Field(
        default=(),
        title="Beam options",
        description="Further options of Apache Beam, like --region=us-central1; see docs/engines.md.",
        json_schema_extra=place(4),
    )


class TrainingForm(BaseModel, frozen=True):
    """The flow from raw archive to report, for any recipe."""

    model_config = ConfigDict(extra="forbid", title="Train")

    recipe: str = Field(
        title="Recipe",
        description="What to train, and on which data set. images and keypoints are for data of your own.",
        json_schema_extra=offer_recipes,
    )
    source: str = Field(
        default="",
        title="Source",
        description="A folder with the raw data, or an official archive, as the worker sees it. Empty for sample, "
        "coco_pose and others on their data: a sample is drawn into the store.",
        json_schema_extra=place(1, pattern=_NO_LOGIN),
    )
    minutes: float = Field(
        default=0,
        ge=0,
        le=100_000,
        title="Minutes",
        description="Train for as long as fits into so many minutes on the worker's machine: measured the first time, "
        "and kept. 0: as the recipe says.",
        json_schema_extra=place(2),
    )
    epochs: float = Field(
        default=0,
        ge=0,
        le=100_000,
        title="Epochs",
        description="Passes over the data, in place of Minutes; 0: as the recipe says.",
        json_schema_extra=place(3),
    )
    promote: bool = Field(
        default=False,
        title="Promote",
        description="Whether the model takes the place of its recipe's champion, if it is not worse beyond noise in "
        "what counts, in any class or joint, in calibration, size or cost. A refusal says why, and fails nothing.",
        json_schema_extra=place(4),
    )
    start_from: str = Field(
        default=_NOT_DONE,
        title="Start from",
        description="This stage and those after it run again, training from its beginning; those before it are used "
        "again if they are whole. A Retry of the run goes on instead.",
        json_schema_extra=offer_stages,
    )
    training: TrainingGroup = Field(
        default_factory=TrainingGroup,
        title="Training",
        description="How it is trained, where that is not as the recipe says.",
        json_schema_extra=place(6),
    )
    data: DataGroup = Field(
        default_factory=DataGroup,
        title="Data",
        description="How the raw data become records.",
        json_schema_extra=place(7),
    )
    machine: MachineGroup = Field(
        default_factory=MachineGroup,
        title="Machine",
        description="Where it is done; the result does not depend on it.",
        json_schema_extra=place(8),
    )

    @classmethod
    def of_options(cls, given: Mapping[str, Any]) -> Self:
        """Return the form with every option of the command line in its group."""
        form: dict[str, Any] = dict(given)
        for group, model in _GROUPS.items():
            form[group] = {name: form.pop(name) for name in model.model_fields if name in form}
        return cls.model_validate(form)

    @field_validator("source")
    @classmethod
    def _no_login(cls, source: str) -> str:
        if not re.match(_NO_LOGIN, source):
            raise SettingsError(f"source {source}: a source has no user or password; get the data, and name its folder")
        return source

    @field_validator("start_from")
    @classmethod
    def _stage(cls, start_from: str) -> str:
        if start_from != _NOT_DONE and start_from not in again_from():
            raise SettingsError(f"start_from {start_from}: there is no such stage; {nearest(start_from, again_from())}")
        return start_from

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        """Refuse what no field can: a value that the recipe cannot have, a source that is not named.

        Raises:
            SettingsError: so that the command line says it in its own way too.
        """
        self.training_recipe()
        if not self.source and self.drawn is None:
            raise SettingsError(f"the recipe {self.recipe} needs a source: give the folder with its raw data")
        return self

    @property
    def choices(self) -> Choices:
        """What is to be changed in the recipe."""
        training = self.training
        return Choices(
            epochs=self.epochs or None,
            steps=training.steps or None,
            examples=training.examples or None,
            minutes=self.minutes or None,
            batch_size=training.batch_size or None,
            learning_rate=training.learning_rate or None,
            schedule=None if training.schedule == _AS_WRITTEN else training.schedule,
            seed=None if training.seed < 0 else training.seed,
            model=None if training.model == _AS_WRITTEN else training.model,
            further=training.further or None,
            init=training.init or None,
            assignments=training.assignments,
        )

    @property
    def drawn(self) -> str | None:
        """The sample that is drawn in place of a source; None if there is a source, or no sample."""
        return None if self.source else _SAMPLES.get(registry.get(self.recipe).dataset)

    def training_recipe(self) -> Recipe:
        """Return the recipe with these changes, for the drawn sample where one is drawn.

        Raises:
            SettingsError: there is no such recipe, or a value that cannot be.
        """
        recipe = registry.for_data(registry.get(self.recipe), self.data.name, self.source)
        recipe = self.choices.apply(recipe)
        return recipe if self.drawn is None else recipe.model_copy(update={"dataset": self.drawn})

    def command(self, root: str) -> str:
        """Return what to type to do the same on the command line."""
        source = f" --source {shlex.quote(self.source)}" if self.source else ""
        source += f" --name {self.data.name}" if self.data.name else ""
        kept = " --keep-files" if self.data.keep_files else ""
        share = self.data.allow_left_out
        allowed = "" if share == LEFT_OUT else f" --allow-left-out {share:g}"
        return f"podline run {self.recipe}{source} --root {shlex.quote(root)}{kept}{allowed}{self.choices.as_options()}"


_GROUPS = {"training": TrainingGroup, "data": DataGroup, "machine": MachineGroup}
