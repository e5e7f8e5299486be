"""The parameters of the training flows: pydantic models, which become the forms in Prefect's UI.

The values that matter first are at the top, the others in two groups. There are no unions, which the form shows badly:
a zero or "as the recipe says" leaves a value as it is. The text of each field is the help that stands beside it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from podline import engines, strategies
from podline.errors import SettingsError
from podline.kinds.table import kind_of
from podline.recipes import registry
from podline.recipes.choices import Choices
from podline.recipes.datasets import Kind
from podline.recipes.parts import MODELS
from podline.recipes.settings import Recipe
from podline.stages.specs import LEFT_OUT
from podline.tasks.form_rules import SchemaRule, at, extend, grouped, one_of, refused

_AS_WRITTEN = "as the recipe says"
# An address with a user or a password: a run's parameters can be read by all who see the run.
_NO_LOGIN = "^(?!.*://[^/]*@)"
_TO_HOLD_OUT = "validation_share=0.1"

# What each of several values is, in JSON schema, where the form cannot say it: `if` and `else` are not shown.
ASSIGNMENT: dict[str, Any] = {
    "if": {"pattern": r"^\s*[a-z][a-z0-9_.]*\s*="},
    "else": {"const": "path=value, like augmentation.cutout=8"},
}


def place(position: int, **more: Any) -> dict[str, Any]:
    """Where in the form a field stands, and what else its schema says."""
    return {"position": position, **more}


def recipes(kind: Kind) -> Callable[[dict[str, Any]], None]:
    """What a form's field of recipes says of itself: where it stands, and which there are when it is deployed."""

    def describe(schema: dict[str, Any]) -> None:
        names = registry.of_kind(kind)
        # As pydantic writes a Literal.
        schema.update(place(0, enum=names) if len(names) > 1 else place(0, const=names[0]))

    return describe


class TrainingGroup(BaseModel, frozen=True):
    """How it is trained, where that is not as the recipe says."""

    model_config = ConfigDict(extra="forbid")

    batch_size: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        title="Batch size",
        description="Examples in a step, over all devices; 0: as the recipe says.",
        json_schema_extra=place(0),
    )
    learning_rate: float = Field(
        default=0,
        ge=0,
        le=1_000,
        title="Learning rate",
        description="The peak of the schedule; 0: as the recipe says.",
        json_schema_extra=place(1),
    )
    schedule: Literal["as the recipe says", "constant", "exponential", "cosine", "one_cycle", "plateau"] = Field(
        default=_AS_WRITTEN,
        title="Schedule",
        description="How the learning rate changes. Plateau lowers it when validation stalls, and needs examples to be "
        f"held out for that: {_TO_HOLD_OUT} under the other values.",
        json_schema_extra=place(2),
    )
    seed: int = Field(
        default=-1,
        ge=-1,
        title="Seed",
        description="Of weights, order, augmentation and dropout; -1: as the recipe says.",
        json_schema_extra=place(3),
    )
    further: str = Field(
        default="",
        title="Train further",
        description="The name of a finished run in the same store: its state is what this one begins with.",
        json_schema_extra=place(4),
    )
    assignments: tuple[str, ...] = Field(
        default=(),
        title="Other values of the recipe",
        description="Each as path=value, like augmentation.cutout=8.",
        json_schema_extra=place(5, items={"type": "string", **ASSIGNMENT}),
    )
    init: str = Field(
        default="",
        title="Weights to begin with",
        description="A .keras, .h5 or .npz file or a SavedModel's folder on the worker's machine: layers of the same "
        "name and shape begin with its weights.",
        json_schema_extra=place(6),
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
    keep_files: bool = Field(
        default=False,
        title="Keep image files",
        description="Records of images and keypoints hold the images' own files, not decoded pixels: smaller, decoded "
        "at each reading, and the very same arrays.",
        json_schema_extra=place(5),
    )
    allow_left_out: float = Field(
        default=LEFT_OUT,
        ge=0,
        le=1,
        title="Allow left out",
        description="The share of the source's records, or of its people, that may be left out; more is an error, "
        "which names the reasons.",
        json_schema_extra=place(6),
    )


def _training_rules(*, needs_source: tuple[str, ...] = ()) -> list[SchemaRule]:
    """What the values of a form must not say together; see :mod:`podline.tasks.form_rules`.

    Args:
        needs_source: the recipes that no sample is drawn for.
    """
    rules = one_of({"epochs": "Epochs", "steps": "Steps", "examples": "Examples", "minutes": "Minutes"})
    held_out = {"contains": {"type": "string", "pattern": r"^\s*validation_share\s*="}}
    for group in (("training",), ()):  # at the top as well, where values once were
        plateau = at((*group, "schedule"), {"const": "plateau"})
        told = {"anyOf": [at(("training", "assignments"), held_out), at(("assignments",), held_out)]}
        sentence = f"another one than plateau, or {_TO_HOLD_OUT} among the other values of the recipe"
        rules.append(refused({"allOf": [plateau, {"not": told}]}, (*group, "schedule"), sentence))
    if needs_source:
        none = {"if": {"maxLength": 0}, "then": {"const": "the folder with the recipe's raw data: none is drawn"}}
        rules.append({"if": at(("recipe",), {"enum": list(needs_source)}), "then": at(("source",), none)})
    return rules


class TrainingParameters(BaseModel, frozen=True):
    """What every flow from raw archive to report is given; a flow's own form says which recipes there are."""

    model_config = ConfigDict(extra="forbid")
    sample: ClassVar[str]
    """What is drawn where no source is named."""
    drawn_for: ClassVar[str]
    """The data set in whose place it is drawn; recipes of any other need a source."""
    kind: ClassVar[Kind] = "classification"
    """What its recipes learn."""

    recipe: str
    source: str = Field(
        default="",
        title="Source",
        description="A folder with the raw data, or an official .tar.gz, as the worker sees it. "
        "Empty for the sample: it is then drawn into the store.",
        json_schema_extra=place(2, pattern=_NO_LOGIN),
    )
    name: str = Field(
        default="",
        title="Name",
        description="What images or keypoints of your own are called in the store: flowers makes data set and recipe "
        "images.flowers. Empty: as the source's folder is called.",
        json_schema_extra=place(3),
    )
    epochs: float = Field(
        default=0,
        ge=0,
        le=100_000,
        title="Epochs",
        description="Passes over the data; 0: as the recipe says. Give one of Epochs, Steps, Examples, Minutes.",
        json_schema_extra=place(4),
    )
    steps: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        title="Steps",
        description="Batches to train on; 0: as the recipe says.",
        json_schema_extra=place(5),
    )
    examples: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000_000,
        title="Examples",
        description="Examples to train on; 0: as the recipe says.",
        json_schema_extra=place(6),
    )
    minutes: float = Field(
        default=0,
        ge=0,
        le=100_000,
        title="Minutes",
        description="Training for as long as fits into so many minutes on the worker's machine: measured the first "
        "time, and kept. 0: as the recipe says.",
        json_schema_extra=place(7),
    )
    start_from: Literal["what is not done", "convert", "validate", "train", "evaluate", "report"] = Field(
        default="what is not done",
        title="Start from",
        description="This stage and those after it run again, training from its beginning; those before it are used "
        "again if they are whole, and run if they are not. A Retry of the run does not begin them anew.",
        json_schema_extra=place(8),
    )
    promote: bool = Field(
        default=False,
        title="Promote",
        description="Whether the model takes the place of its recipe's champion, if it is not worse beyond noise in "
        "what counts, in any class or joint, in calibration, size or cost. A refusal says why, and fails nothing.",
        json_schema_extra=place(9),
    )
    training: TrainingGroup = Field(
        default_factory=TrainingGroup,
        title="Training",
        description="How it is trained, where that is not as the recipe says.",
        json_schema_extra=place(10),
    )
    machine: MachineGroup = Field(
        default_factory=MachineGroup,
        title="Machine",
        description="Where it is done; the result does not depend on it.",
        json_schema_extra=place(11),
    )

    @model_validator(mode="before")
    @classmethod
    def _grouped(cls, given: Any) -> Any:
        return grouped(cls, given) if isinstance(given, dict) else given

    @field_validator("source")
    @classmethod
    def _no_login(cls, source: str) -> str:
        """Refuses what the form's pattern refuses.

        Raises:
            SettingsError: the source has a password in it.
        """
        if not re.match(_NO_LOGIN, source):
            raise SettingsError(f"source {source}: a source has no user or password; get the data, and name its folder")
        return source

    @property
    def choices(self) -> Choices:
        """What is to be changed in the recipe."""
        training = self.training
        return Choices(
            epochs=self.epochs or None,
            steps=self.steps or None,
            examples=self.examples or None,
            minutes=self.minutes or None,
            batch_size=training.batch_size or None,
            learning_rate=training.learning_rate or None,
            schedule=None if training.schedule == _AS_WRITTEN else training.schedule,
            seed=None if training.seed < 0 else training.seed,
            further=training.further or None,
            init=training.init or None,
            assignments=training.assignments,
        )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        """What is refused in the form is refused here: a value that the recipe cannot have, a source that is not named.

        Raises:
            SettingsError: so that the command line says it in its own way too.
        """
        self.training_recipe()
        if not self.source and registry.get(self.recipe).dataset != self.drawn_for:
            raise SettingsError(f"the recipe {self.recipe} needs a source: give the folder with its raw data")
        return self

    @property
    def drawn(self) -> str | None:
        """The sample that is drawn in place of a source; None if there is a source."""
        return None if self.source else self.sample

    def training_recipe(self) -> Recipe:
        """The recipe with these changes.

        Raises:
            SettingsError: there is no such recipe, it is for another flow, or a value that cannot be.
        """
        recipe = registry.for_data(registry.get(self.recipe), self.name, self.source)
        if recipe.kind != self.kind:
            learns = kind_of(recipe).learns
            raise SettingsError(f"the recipe {recipe.name} {learns}; choose a deployment of the other flow")
        return self.choices.apply(recipe)

    def command(self, root: str) -> str:
        """What to type to do the same on the command line."""
        source = f" --source {shlex.quote(self.source)}" if self.source else ""
        source += f" --name {self.name}" if self.name else ""
        kept = " --keep-files" if self.machine.keep_files else ""
        share = self.machine.allow_left_out
        allowed = "" if share == LEFT_OUT else f" --allow-left-out {share:g}"
        return f"podline run {self.recipe}{source} --root {shlex.quote(root)}{kept}{allowed}{self.choices.as_options()}"


def _rules_of(form: type[TrainingParameters]) -> list[SchemaRule]:
    """The rules of a form; a sample is drawn for the recipes of one data set alone."""
    names = registry.of_kind(form.kind)
    return _training_rules(needs_source=tuple(n for n in names if registry.get(n).dataset != form.drawn_for))


class CifarParameters(TrainingParameters, frozen=True):
    """The flow cifar_training: from raw archive to report."""

    model_config = ConfigDict(
        title="Train on CIFAR or MNIST",
        json_schema_extra=lambda schema: extend(schema, CifarParameters, _rules_of(CifarParameters)),
    )
    sample = drawn_for = "sample"

    recipe: str = Field(
        default="sample",
        title="Recipe",
        description="What to train, and on which data set. The sample is drawn, so it needs no source.",
        json_schema_extra=recipes("classification"),
    )
    model: str = Field(
        default=_AS_WRITTEN,
        title="Model",
        description="The kind of network.",
        json_schema_extra=lambda schema: schema.update(place(1, enum=[_AS_WRITTEN, *MODELS.names()])),
    )

    @property
    def choices(self) -> Choices:
        """What is to be changed in the recipe."""
        kind = None if self.model == _AS_WRITTEN else self.model
        return super().choices.model_copy(update={"model": kind})


class CocoParameters(TrainingParameters, frozen=True):
    """The flow coco_training: from images with people to report."""

    model_config = ConfigDict(
        title="Train on keypoints",
        json_schema_extra=lambda schema: extend(schema, CocoParameters, _rules_of(CocoParameters)),
    )
    sample = "coco_sample"
    drawn_for = "coco"
    kind = "pose"

    recipe: str = Field(
        default="coco_pose",
        title="Recipe",
        description="What to train. coco_pose is for COCO's people, keypoints for joints of your own.",
        json_schema_extra=recipes("pose"),
    )
    source: str = Field(
        default="",
        title="Source",
        description="A folder with annotations in COCO's format and images, or COCO's zip files, as the worker sees "
        "it. Empty for coco_pose: a sample of stick people is drawn into the store.",
        json_schema_extra=place(2, pattern=_NO_LOGIN),
    )

    def training_recipe(self) -> Recipe:
        """The recipe with these changes, for the drawn sample if there is no source."""
        recipe = super().training_recipe()
        return recipe if self.drawn is None else recipe.model_copy(update={"dataset": self.drawn})
