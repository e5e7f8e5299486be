"""The table of options: the values that a person may set for a run, each declared once.

A field becomes an option of the command line (:func:`podline.commands.options.command_line`), a field of a flow's form
(:mod:`podline.tasks.forms`) and a row of docs/reference/cli.md. No field is a union, because forms show unions badly;
a special default value means "unchanged".
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from podline.base import entry_points
from podline.base.errors import SettingsError
from podline.base.frozen import is_object
from podline.recipes import registry
from podline.recipes.parts import LAYOUTS, MODELS
from podline.recipes.settings import Recipe
from podline.settings import engines, strategies
from podline.settings.machine import nearest

AS_WRITTEN = "as the recipe says"
NOT_DONE = "what is not done"
LEFT_OUT = 0.1
# Addresses with user or password are refused, since everybody who sees a run can read its parameters.
_NO_LOGIN = "^(?!.*://[^/]*@)"


@dataclass(frozen=True)
class Option:
    """The properties of an option that its pydantic field cannot hold; pydantic calls it to complete a form's schema.

    Attributes:
        path: dotted path of the recipe's value that the option sets.
        unset: what the default value means, for help pages and forms.
        flag: the option's name on the command line, without dashes, if it differs from the field's name.
        metavar: placeholder for the option's value on a help page.
        names: returns the allowed values, such as names of recipes, including those of installed packages.
        pattern: a regular expression for the text in a form.
        check: returns a valid text unchanged, or raises ValueError.
        is_file: whether the value is the path of a file. A run makes it absolute; the recipe stores it under ``file``.
    """

    path: str = ""
    unset: str = ""
    flag: str = ""
    metavar: str = ""
    names: Callable[[], tuple[str, ...]] | None = None
    pattern: str = ""
    check: Callable[[str], str] | None = None
    is_file: bool = False

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add these properties to the JSON schema of the option's field."""
        default = schema.get("default")
        if self.names:
            schema["enum"] = [*([] if default is None else [default]), *self.names()]
        if self.pattern:
            schema["pattern"] = self.pattern
        if self.unset and default != self.unset:
            schema["description"] += f" {'Empty' if default == '' else f'{default:g}'}: {self.unset}."

    def setting(self, value: Any) -> Any:
        """Convert an option's value to the recipe's value."""
        return {"file": value} if self.is_file else value


def option(default: Any, title: str, text: str, *, path: str = "", unset: str = "", **facts: Any) -> Any:
    """Return the pydantic field of an option.

    Args:
        default: the value that means "unchanged".
        title: title in a form.
        text: the help.
        path: see :class:`Option`.
        unset: see :class:`Option`.
        **facts: other properties of :class:`Option`, and pydantic's bounds ``ge``, ``gt`` and ``le``. The default of
            ``le`` is the upper bound of the recipe's field.
    """
    bounds = _upper_bound(path) | {name: facts.pop(name) for name in ("ge", "gt", "le") if name in facts}
    described: Any = Option(path=path, unset=unset or (AS_WRITTEN if path else ""), **facts)
    return Field(default=default, title=title, description=text, json_schema_extra=described, **bounds)


def _upper_bound(path: str) -> dict[str, Any]:
    field = registry.field_of(path)
    limit = next((each for each in (field.metadata if field else ()) if hasattr(each, "le")), None)
    return {"le": limit.le} if limit else {}


def same(model: type[Options], name: str) -> Any:
    """Return a field of another group, for a group with the same option."""
    return model.model_fields[name]


def option_of(field: FieldInfo) -> Option:
    """Return the properties of a field's option."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, Option) else Option()


def flag_of(name: str, field: FieldInfo) -> str:
    """Return the flag of an option on the command line."""
    return f"--{option_of(field).flag or name.replace('_', '-')}"


def _in_order(schema: dict[str, Any]) -> None:
    """Set the positions of a form's fields: required fields first, else in the order of their declaration."""
    required = schema.get("required", ())
    for position, name in enumerate(sorted(schema["properties"], key=lambda name: name not in required)):
        schema["properties"][name]["position"] = position


class Options(BaseModel):
    """The base class of groups of options. An option with its default value changes nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_in_order)

    @model_validator(mode="before")
    @classmethod
    def _without_unset(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if value is not None} if is_object(values) else values

    @field_validator("*")
    @classmethod
    def _is_checked(cls, value: Any, field: ValidationInfo) -> Any:
        check = option_of(cls.model_fields[str(field.field_name)]).check
        return check(value) if check and value else value

    def given(self) -> Iterator[tuple[str, FieldInfo, Any]]:
        """Yield name, field and value of each option whose value is not its default."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if not isinstance(value, Options) and value != field.default:
                yield name, field, value

    def changes(self) -> dict[str, Any]:
        """Return the recipe's values that these options set, by dotted path."""
        facts = ((option_of(field), value) for _, field, value in self.given())
        return {each.path: each.setting(value) for each, value in facts if each.path}

    def as_options(self, *, but: tuple[str, ...] = ()) -> str:
        """Return the changed options as command-line text, each after a space; leave out the fields in ``but``."""
        return "".join(_typed(name, field, value) for name, field, value in self.given() if name not in but)


def _typed(name: str, field: FieldInfo, value: Any) -> str:
    flag = flag_of(name, field)
    if value is True:
        return f" {flag}"
    values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
    return "".join(f" {flag} {shlex.quote(str(each))}" for each in values)


class Length(Options):
    """The length of a training."""

    minutes: float = option(
        0.0,
        "Minutes",
        "Train for about this many minutes. The speed is measured once; later runs train equally long.",
        ge=0,
        le=100_000,
        unset=AS_WRITTEN,
    )
    epochs: float = option(
        0.0, "Epochs", "Passes over the training data, instead of minutes.", ge=0, path="duration.epochs"
    )


class TrainingGroup(Options):
    """Values of the training that override the recipe's."""

    model: str = option(
        AS_WRITTEN,
        "Model",
        "The network of a classifier; see docs/how-to/model.md for one of your own.",
        path="model.kind",
        names=MODELS.names,
    )
    steps: int = option(0, "Steps", "Batches to train on, instead of epochs.", ge=0, path="duration.steps")
    batch_size: int = option(0, "Batch size", "Examples per step, on all devices together.", ge=0, path="batch_size")
    learning_rate: float = option(
        0.0, "Learning rate", "The highest rate of the schedule.", ge=0, path="schedule.learning_rate"
    )
    schedule: Literal[
        "as the recipe says",
        "constant",
        "exponential",
        "cosine",
        "restarts",
        "polynomial",
        "step",
        "one_cycle",
        "plateau",
    ] = option(
        AS_WRITTEN,
        "Schedule",
        "How the learning rate changes; see docs/how-to/learning-rate.md. Plateau needs held-out examples, for "
        "example validation_share=0.1 in Other values of the recipe.",
        path="schedule.kind",
    )
    seed: int = option(
        -1, "Seed", "The seed of initial weights, example order, augmentation and dropout.", ge=-1, path="seed"
    )
    further: str = option(
        "",
        "Train further",
        "A finished run in the same store from which this run continues. champion means the recipe's champion, if "
        "there is one. See docs/how-to/train.md.",
        path="further",
        metavar="RUN",
    )
    init: str = option(
        "",
        "Initial weights",
        "A .keras, .weights.h5 or .npz file on the machine that trains; see docs/how-to/fine-tune.md.",
        path="init",
        metavar="FILE",
        is_file=True,
    )
    assignments: tuple[str, ...] = option(
        (),
        "Other values of the recipe",
        "Any value of the recipe as path=value, such as augmentation.cutout=8.",
        flag="set",
        metavar="KEY=VALUE",
    )

    def changes(self) -> dict[str, Any]:
        """Return the recipe's values that these options set; assignments override the others."""
        return super().changes() | dict(_assignment(text) for text in self.assignments)


class Choices(TrainingGroup, Length):
    """All options that change a recipe."""

    @model_validator(mode="after")
    def _has_one_duration(self) -> Choices:
        durations = ("epochs", "steps", "minutes")
        given = [f"{name}={getattr(self, name):g}" for name in durations if getattr(self, name)]
        if len(given) > 1:
            raise SettingsError(
                f"got {' and '.join(given)}, expected one of {', '.join(durations)}; leave out the others"
            )
        return self

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe with these changes.

        Raises:
            SettingsError: a value is invalid.
        """
        return registry.override(recipe, self.changes())


class DataGroup(Options):
    """The conversion of raw data into records."""

    name: str = option(
        "",
        "Name",
        "A name for your own images or keypoints. With flowers, data set and recipe are called images.flowers.",
        unset="the name of the source's folder or archive",
    )
    layout: str = option(
        "",
        "Layout",
        "The layout of a source of images; see docs/how-to/images.md.",
        path="conversion.layout",
        unset="the detected one",
        names=LAYOUTS.names,
    )
    keep_jpeg: bool = option(
        False,
        "Keep JPEG files",
        "Store the resized images as JPEG files, for images, labels, keypoints and coco. Records are smaller, but each "
        "read decodes them.",
    )
    allow_left_out: float = option(
        LEFT_OUT,
        "Allow left out",
        "The largest share of the source's records or people that may be left out without an error.",
        ge=0,
        le=1,
        metavar="SHARE",
    )


class ConvertOptions(DataGroup):
    """Options of a conversion only; a run takes these values from its recipe."""

    side: int = option(
        0,
        "Side",
        "The side of the square images in pixels.",
        ge=0,
        unset="as the recipe says, else 368 for keypoints and coco, 64 for images and labels",
    )
    max_people: int = option(
        0, "Max people", "The largest number of people in a record.", ge=0, unset="as the recipe says, else 20"
    )


class MachineGroup(Options):
    """Where the work runs, and where its results are stored; no result depends on these options."""

    root: str = option(
        "",
        "Store",
        "Where data sets, runs and reports go: a folder, or gs://bucket/prefix.",
        unset="the setting root, else podline-root",
    )
    strategy: str = option(
        "",
        "Strategy",
        "The devices of the model: auto (the GPUs, else the CPU), cpu, cpu:N (N replicas on the CPU), gpu, workers "
        "(several hosts), tpu or tpu:NAME; see docs/how-to/strategies.md.",
        unset="the setting strategy, else auto",
        metavar="NAME",
        pattern=f"^({strategies.PATTERN})?$",
        check=strategies.checked,
    )
    engine: str = option(
        "",
        "Engine",
        f"Where the conversion runs: {engines.NAMES}; see docs/how-to/engines.md.",
        unset="the setting engine, else local",
        metavar="NAME",
        pattern=f"^({engines.PATTERN})?$",
        check=engines.checked,
    )
    workers: int = option(
        0,
        "Conversion workers",
        "Processes that write shards, with the engine local.",
        ge=0,
        le=1024,
        unset="the setting workers, else 1",
    )
    beam_options: tuple[str, ...] = option(
        (),
        "Beam options",
        "Further options of Apache Beam, such as --region=us-central1; see docs/how-to/engines.md.",
        flag="beam-option",
        metavar="OPTION",
    )


def _without_login(source: str) -> str:
    if not re.match(_NO_LOGIN, source):
        raise SettingsError(f"source {source} contains a user or password; download the data, and give its folder")
    return source


def _stages() -> list[str]:
    return entry_points.load("podline.stages.table:again_from")()


def _known_stage(name: str) -> str:
    if name not in (NOT_DONE, *_stages()):
        raise SettingsError(f"start_from={name}: there is no stage {name!r}; {nearest(name, _stages())}")
    return name


class RunOptions(Options):
    """The most used options of a run of all stages; its form shows them first."""

    recipe: str = option(
        ...,
        "Recipe",
        "The recipe to train, with its data set. images, labels and keypoints are for your own data.",
        names=registry.names,
    )
    source: str = option(
        "",
        "Source",
        "A folder or a file (an archive, a table) with the raw data; also in gs://. Recipes with a synthetic data set, "
        "such as sample and coco_pose, need no source.",
        pattern=_NO_LOGIN,
        check=_without_login,
    )
    minutes: float = same(Length, "minutes")
    epochs: float = same(Length, "epochs")
    promote: bool = option(
        False,
        "Promote",
        "Make the model its recipe's champion if no figure is lower than the reference's by more than noise and "
        "another seed usually explain; see docs/how-to/promote.md.",
    )
    start_from: str = option(
        NOT_DONE,
        "Start from",
        "Run this stage and all later ones again, training from step 0. Complete earlier stages are reused. A retry of "
        "the run keeps the stages that it has finished.",
        unset=NOT_DONE,
        metavar="STAGE",
        names=_stages,
        check=_known_stage,
    )


class SearchOptions(Options):
    """The search for a learning rate."""

    low: float = option(1e-5, "Lowest rate", "The learning rate of the first step.", gt=0, le=1_000_000)
    high: float = option(10.0, "Highest rate", "The learning rate of the last step.", gt=0, le=1_000_000)
    steps: int = option(300, "Steps", "The number of steps; more steps give a smoother curve.", ge=20, le=100_000)
    run: str = option(
        "",
        "Run",
        "Start with the weights of this run's newest checkpoint; the run stays unchanged.",
        unset="a training's initial weights",
        metavar="RUN",
    )

    @model_validator(mode="after")
    def _rises(self) -> SearchOptions:
        if self.low >= self.high:
            raise SettingsError(f"low={self.low:g}, high={self.high:g}: the lowest rate must be below the highest")
        return self


class TrialOptions(Options):
    """The search for values of a recipe."""

    over: tuple[str, ...] = option(
        (),
        "Search over",
        "A value of the recipe with its range, such as schedule.learning_rate=log:0.001..1, model.width=0.5..2 or "
        "optimizer.kind=sgd,adam.",
        metavar="PATH=SPACE",
    )
    trials: int = option(20, "Trials", "The number of runs; the first has the recipe's own values.", ge=1, le=10_000)
    minutes: float = option(
        0.0,
        "Minutes",
        "The time limit of the search; a trial that would exceed it is not started.",
        ge=0,
        le=100_000,
        unset="no limit",
    )


def _assignment(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"got {text!r}, expected KEY=VALUE, for example schedule.learning_rate=0.1")
    try:
        return path.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return path.strip(), value
