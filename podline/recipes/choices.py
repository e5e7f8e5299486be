"""Changes to a recipe, from options of the command line or a flow's form."""

from __future__ import annotations

import json
import shlex
from typing import Any

from pydantic import Field, model_validator

from podline.errors import SettingsError
from podline.frozen import Frozen
from podline.recipes import registry
from podline.recipes.settings import Recipe


class Choices(Frozen):
    """Changes to a recipe; None leaves it as it is.

    Attributes:
        epochs: train for so many passes over the data,
        steps: or so many batches,
        examples: or so many examples,
        minutes: or for as long as fits into so many minutes: at most one of the four. How long that is, no recipe
            knows: see :class:`podline.stages.preflight.PaceSpec`.
        batch_size: examples in a step.
        learning_rate: the peak of the schedule.
        schedule: the kind of schedule.
        seed: of all that is left to chance.
        model: the kind of network.
        further: the run that is trained further.
        init: the file of weights that training begins with.
        assignments: ``path=value``, the value as JSON or as a plain word.
    """

    epochs: float | None = None
    steps: int | None = None
    examples: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    seed: int | None = None
    model: str | None = None
    further: str | None = None
    init: str | None = None
    assignments: tuple[str, ...] = Field(default=(), description="any other value")

    @model_validator(mode="after")
    def _one_duration(self) -> Choices:
        given = self._durations() | ({} if self.minutes is None else {"minutes": self.minutes})
        if len(given) > 1:
            written = " and ".join(f"{name}={value:g}" for name, value in given.items())
            raise SettingsError(f"{written}: give one of epochs, steps, examples, minutes")
        return self

    def apply(self, recipe: Recipe) -> Recipe:
        """The recipe with these changes.

        Raises:
            SettingsError: a value that cannot be.
        """
        values = {
            "duration": self._durations() or None,
            "batch_size": self.batch_size,
            "schedule.learning_rate": self.learning_rate,
            "schedule.kind": self.schedule,
            "seed": self.seed,
            "model.kind": self.model,
            "further": self.further,
            "init": self.init and {"file": self.init},
        }
        changes = {path: value for path, value in values.items() if value is not None}
        return registry.override(recipe, changes | dict(_assignment(text) for text in self.assignments))

    def as_options(self) -> str:
        """The same as options of the command line, each with a space before it."""
        given = [
            f" --{name.replace('_', '-')} {shlex.quote(str(value))}"
            for name, value in self
            if value is not None and name != "assignments"
        ]
        return "".join([*given, *(f" --set {shlex.quote(text)}" for text in self.assignments)])

    def _durations(self) -> dict[str, float]:
        durations = {"epochs": self.epochs, "steps": self.steps, "examples": self.examples}
        return {name: value for name, value in durations.items() if value is not None}


def _assignment(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"{text!r} is no assignment; write it like schedule.learning_rate=0.1")
    try:
        return path.strip(), json.loads(value)
    except ValueError:
        return path.strip(), value
