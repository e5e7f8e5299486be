"""The spaces of a search: for each searched value of the recipe, the range or choices to try."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from podline.base.errors import SettingsError
from podline.base.frozen import Frozen
from podline.recipes import registry
from podline.recipes.settings import Recipe
from podline.stages.options import Choices, option_of

Value = bool | int | float | str

_LOG, _RANGE = "log:", ".."
# Significant digits of the numbers to try, few enough to type.
_DIGITS = 4
# Values that name the trials, or choose the examples by which trials are compared.
_SAME = ("name", "dataset", "conversion", "validation_share", "without_part")


class Space(Frozen):
    """The values that one field of a recipe may have.

    Attributes:
        path: dotted path of the recipe's value.
        choices: the possible values; empty for a range.
        low: the lowest value of a range.
        high: the highest value of a range.
        log: whether numbers are sampled uniformly on a logarithmic scale.
    """

    path: str
    choices: tuple[Value, ...] = ()
    low: int | float = 0
    high: int | float = 0
    log: bool = False

    @property
    def whole(self) -> bool:
        """Return whether a range has only integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def rounded(self, value: Value) -> Value:
        """Return a value rounded to few digits, within the range."""
        if self.choices or self.whole or not isinstance(value, float):
            return value
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def probes(self) -> Iterator[Value]:
        """Yield values that the recipe must accept: each choice, or the ends and then the middle of a range."""
        if self.choices:
            yield from self.choices
            return
        yield from (self.low, self.high)
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        yield round(middle) if self.whole else self.rounded(middle)


def spaces_of(texts: Iterable[str], recipe: Recipe) -> tuple[Space, ...]:
    """Return the spaces of a search, each written as ``PATH=SPACE``.

    Raises:
        SettingsError: a space is invalid for the recipe, or trials with different values cannot be compared.
    """
    found = tuple(map(_space, texts))
    if not found:
        raise SettingsError("got no value to search over; give --over, such as schedule.learning_rate=log:0.001..1")
    for one, other in itertools.combinations(found, 2):
        if one.path == other.path:
            raise SettingsError(f"--over names {one.path} twice; give it once")
    for space in found:
        _require_comparable(space.path, recipe)
        for value in space.probes():
            registry.override(recipe, {space.path: value})
    return found


def _require_comparable(path: str, recipe: Recipe) -> None:
    """Refuse a setting that changes the examples, or the formula of the loss if trials are compared by their losses."""
    task, parts = recipe.task, path.split(".")
    if parts[0] in _SAME:
        raise SettingsError(
            f"--over {path}: trials are compared on the same examples of one data set; search over another value, and "
            f"give {path} in the recipe"
        )
    compared = any(parts[: len(named)] == named for named in (name.split(".") for name in task.beside_loss))
    if parts[0] in ("task", "loss") and not compared and not task.has_error:
        raise SettingsError(
            f"--over {path}: trials of the kind {task.kind} are compared by their loss, and this value changes its "
            f"formula; search over {', '.join(task.beside_loss)} or a value outside of task and loss"
        )


def _space(text: str) -> Space:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not (name and equals and values):
        raise _no_space(text)
    path = _path(name)
    log = values.startswith(_LOG)
    low, dots, high = values.removeprefix(_LOG).partition(_RANGE)
    if dots:
        ends = _value(low), _value(high)
        if any(isinstance(end, bool | str) for end in ends) or (log and ends[0] <= 0):
            raise _no_space(text)
        if not ends[0] < ends[1]:
            raise SettingsError(f"--over {text}: got {low} to {high}, expected the lower end first")
        return Space(path=path, low=ends[0], high=ends[1], log=log)
    choices = tuple(dict.fromkeys(map(_value, values.split(","))))
    if log or len(choices) < 2:
        raise _no_space(text)
    return Space(path=path, choices=choices)


def _no_space(text: str) -> SettingsError:
    return SettingsError(
        f"--over {text}: expected PATH=LOW..HIGH, PATH=log:LOW..HIGH (both above 0) or PATH=CHOICE,CHOICE, "
        "such as schedule.learning_rate=log:0.001..1"
    )


def _path(name: str) -> str:
    """Return the dotted path of a recipe's value, given the path or an option's name such as ``learning_rate``."""
    field = Choices.model_fields.get(name)
    return option_of(field).path or name if field else name


def _value(text: str) -> Any:
    text = text.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = float(text)  # for example .5, which is not JSON
        except ValueError:
            return text
    return value if isinstance(value, bool | int | float) else text
