"""The table of options: the values that a person may set for a run, each declared once.

A field becomes an option of the command line (:func:`podline.commands.options.command_line`), a field of a flow's form
(:mod:`podline.tasks.forms`) and a row of docs/reference/cli.md. Fields are no unions, which forms show badly; a
special default value means "unchanged".
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
    """The properties of an option besides type, bounds, title and help; pydantic calls it to complete a form's schema.

    Attributes:
        path: dotted path of the recipe's value that it sets.
        unset: meaning of its default.
        flag: its name on the command line, without dashes, if it differs from the field's.
        metavar: placeholder for its value on a help page.
        names: lists the possible names, including those of installed packages.
        pattern: a regular expression for the text in a form.
        check: returns the text, or raises ValueError.
        is_file: whether it names a file, by an absolute path in a run; the recipe's value stores it as ``file``.
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
        """Complete the schema of its field in a form."""
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
    """Make the field of an option.

    Args:
        default: the value that means "unchanged".
        title: title in a form.
        text: the help.
        path: see :class:`Option`.
        unset: see :class:`Option`.
        **facts: other properties of :class:`Option`, and pydantic's bounds (``ge``, ``gt``, ``le``); the upper one is
            by default that of the recipe's field.
    """
    bounds = _upper_bound(path) | {name: facts.pop(name) for name in ("ge", "gt", "le") if name in facts}
    described: Any = Option(path=path, unset=unset or (AS_WRITTEN if path else ""), **facts)
    return Field(default=default, title=title, description=text, json_schema_extra=described, **bounds)


def _upper_bound(path: str) -> dict[str, Any]:
    field = registry.field_of(path)
    limit = next((each for each in (field.metadata if field else ()) if hasattr(each, "le")), None)
    return {"le": limit.le} if limit else {}


def same(model: type[Options], name: str) -> Any:
    """Copy another model's field, for a model with the same option."""
    return model.model_fields[name]


def option_of(field: FieldInfo) -> Option:
    """Return the properties of a field's option."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, Option) else Option()


def flag_of(name: str, field: FieldInfo) -> str:
    """Return the flag of an option on the command line."""
    return f"--{option_of(field).flag or name.replace('_', '-')}"


def _in_order(schema: dict[str, Any]) -> None:
    """Order the fields of a form as declared, required ones first."""
    required = schema.get("required", ())
    for position, name in enumerate(sorted(schema["properties"], key=lambda name: name not in required)):
        schema["properties"][name]["position"] = position


class Options(BaseModel):
    """The base of groups of options; a default value leaves an option unchanged."""

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
        """Yield name, field and value of each option that was changed."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if not isinstance(value, Options) and value != field.default:
                yield name, field, value

    def changes(self) -> dict[str, Any]:
        """Return the recipe's values that these options set, by path."""
        facts = ((option_of(field), value) for _, field, value in self.given())
        return {each.path: each.setting(value) for each, value in facts if each.path}

    def as_options(self, *, but: tuple[str, ...] = ()) -> str:
        """Return the equivalent command-line options, each after a space, without some fields."""
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
        "Train as long as these minutes allow; measured once, and kept.",
        ge=0,
        le=100_000,
        unset=AS_WRITTEN,
    )
    epochs: float = option(0.0, "Epochs", "Passes over the data, instead of minutes.", ge=0, path="duration.epochs")


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
    batch_size: int = option(0, "Batch size", "Examples in a step, over all devices.", ge=0, path="batch_size")
    learning_rate: float = option(
        0.0, "Learning rate", "The peak of the schedule.", ge=0, path="schedule.learning_rate"
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
        "How the learning rate changes; see docs/how-to/learning-rate.md. Plateau needs held-out examples: "
        "validation_share=0.1 under the other values.",
        path="schedule.kind",
    )
    seed: int = option(-1, "Seed", "The seed of weights, order, augmentation and dropout.", ge=-1, path="seed")
    further: str = option(
        "",
        "Train further",
        "A finished run in the same store that this run continues; champion means the recipe's champion, if there is "
        "one. See docs/how-to/train.md.",
        path="further",
        metavar="RUN",
    )
    init: str = option(
        "",
        "Initial weights",
        "A .keras, .weights.h5 or .npz file, on the machine that trains; see docs/how-to/fine-tune.md.",
        path="init",
        metavar="FILE",
        is_file=True,
    )
    assignments: tuple[str, ...] = option(
        (),
        "Other values of the recipe",
        "Any value of the recipe as path=value, like augmentation.cutout=8.",
        flag="set",
        metavar="KEY=VALUE",
    )

    def changes(self) -> dict[str, Any]:
        """Return the recipe's values that these options set; assignments override the others."""
        return super().changes() | dict(_assignment(text) for text in self.assignments)


class Choices(TrainingGroup, Length):
    """All changes to a recipe."""

    @model_validator(mode="after")
    def _has_one_duration(self) -> Choices:
        durations = ("epochs", "steps", "minutes")
        given = [f"{name}={getattr(self, name):g}" for name in durations if getattr(self, name)]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)}: give one of {', '.join(durations)}")
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
        "The name of your own images or keypoints: flowers gives the data set and recipe images.flowers.",
        unset="the name of the source's folder",
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
        "Store images in records as JPEG files, in their side, for images, keypoints and coco: smaller, but decoded at "
        "each read.",
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
    """Options only for a conversion; a run takes them from its recipe."""

    side: int = option(0, "Side", "The side of the square images.", ge=0, unset="as the recipe says, else 368 and 64")
    max_people: int = option(
        0, "Max people", "The number of people that a coco record can hold.", ge=0, unset="as the recipe says, else 20"
    )


class MachineGroup(Options):
    """The place of the work; the result does not depend on it."""

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
        "Processes of the engine local that write shards.",
        ge=0,
        le=1024,
        unset="the setting workers, else 1",
    )
    beam_options: tuple[str, ...] = option(
        (),
        "Beam options",
        "Further options of Apache Beam, like --region=us-central1; see docs/how-to/engines.md.",
        flag="beam-option",
        metavar="OPTION",
    )


def _without_login(source: str) -> str:
    if not re.match(_NO_LOGIN, source):
        raise SettingsError(f"source {source}: a source has no user or password; get the data, and name its folder")
    return source


def _stages() -> list[str]:
    return entry_points.load("podline.stages.table:again_from")()


def _known_stage(name: str) -> str:
    if name not in (NOT_DONE, *_stages()):
        raise SettingsError(f"start_from: there is no stage {name!r}; {nearest(name, _stages())}")
    return name


class RunOptions(Options):
    """Options that most people set for a run of all stages; they come first in its form."""

    recipe: str = option(
        ...,
        "Recipe",
        "The recipe to train, with its data set. images, labels and keypoints are for your own data.",
        names=registry.names,
    )
    source: str = option(
        "",
        "Source",
        "A folder with the raw data, or an official archive; also in gs://. Recipes for drawn samples, like "
        "sample and coco_pose, need none.",
        pattern=_NO_LOGIN,
        check=_without_login,
        is_file=True,
    )
    minutes: float = same(Length, "minutes")
    epochs: float = same(Length, "epochs")
    promote: bool = option(
        False,
        "Promote",
        "The model becomes its recipe's champion if it loses no more than equal models do; see docs/how-to/promote.md.",
    )
    start_from: str = option(
        NOT_DONE,
        "Start from",
        "Run this stage and the later ones again, training from its beginning; complete earlier stages are "
        "reused. A retry of the run does not repeat them.",
        unset=NOT_DONE,
        metavar="STAGE",
        names=_stages,
        check=_known_stage,
    )


class SearchOptions(Options):
    """The search for a learning rate."""

    low: float = option(1e-5, "Lowest rate", "The rate of the first step.", gt=0, le=1_000_000)
    high: float = option(10.0, "Highest rate", "The rate of the last step.", gt=0, le=1_000_000)
    steps: int = option(
        300, "Steps", "From the lowest rate to the highest; more give a smoother curve.", ge=20, le=100_000
    )
    run: str = option(
        "",
        "Run",
        "Start from the newest checkpoint of this run, which is only read.",
        unset="from fresh weights",
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
        "A value of the recipe with its range, as schedule.learning_rate=log:0.001..1, model.width=0.5..2 or "
        "optimizer.kind=sgd,adam.",
        metavar="PATH=SPACE",
    )
    trials: int = option(20, "Trials", "The number of runs; the first has the recipe's own values.", ge=1, le=10_000)
    minutes: float = option(
        0.0, "Minutes", "The time limit; a trial that would not fit is not started.", ge=0, le=100_000, unset="no limit"
    )


def _assignment(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"{text!r}: expected KEY=VALUE, like schedule.learning_rate=0.1")
    try:
        return path.strip(), json.loads(value)
    except ValueError:
        return path.strip(), value
