"""The base of every spec, result and setting, an immutable pydantic model; and types of unchecked JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, ValidationError

# pydantic's names for the members of a union: constrained-int, literal['all','best'], dict[str,float].
_FORM = re.compile(r"int|str|float|bool|(constrained|function|nullable)-.*|\w+\[.*\].*")

Json: TypeAlias = Any
"""A JSON value that no model has checked."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that no model has checked: name → value."""


def is_object(document: Json) -> TypeGuard[JsonObject]:
    """Return whether a document is an object."""
    return isinstance(document, dict)


def name_check(kind: str, pattern: str, names: str) -> Callable[[str], str]:
    """Make a function that returns a valid name of a kind, and raises ValueError for any other.

    Args:
        kind: kind of the names, as in ``there is no engine 'x'``.
        pattern: a regular expression that matches a whole name.
        names: the possible names as text.
    """

    def checked(name: str) -> str:
        if not re.fullmatch(pattern, name):
            raise ValueError(f"there is no {kind} {name!r}; use {names}")
        return name

    return checked


class Problem(NamedTuple):
    """A validation error: the path of the field, the given and the expected value, pydantic's type of error."""

    loc: tuple[str | int, ...]
    input: Json
    msg: str
    type: str


def problem_in(error: ValidationError) -> Problem:
    """Return the first validation error; for a union, combine the errors of all members."""
    problems = [(_fields(found["loc"]), found) for found in error.errors()]
    first, _ = problems[0]
    loc = max((loc for loc, _ in problems if loc[: len(first)] == first), key=len)
    here = [found for other, found in problems if other == loc]
    told = dict.fromkeys(found["msg"].removeprefix("Value error, ").partition(", unable to")[0] for found in here)
    message, *others = told
    message = " or ".join([message, *(other.removeprefix("Input should be ") for other in others)])
    return Problem(loc, here[0]["input"], message, here[0]["type"])


def _fields(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a path without the members of a union, which pydantic adds to it."""
    return tuple(part for part in loc if not isinstance(part, str) or not _FORM.fullmatch(part))


class Frozen(BaseModel):
    """A model that is frozen, refuses unknown keys, and is equal and hashable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, validated like the original; ``model_copy(update=…)`` does not validate."""
        return type(self).model_validate({**dict(self), **values})
