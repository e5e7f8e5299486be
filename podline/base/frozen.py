"""The immutable pydantic base class of specs, results and settings; types for JSON that is not validated yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError

# pydantic's names for the members of a union, such as constrained-int, literal['all','best'] or dict[str,float].
_FORM = re.compile(r"int|str|float|bool|(constrained|function|nullable)-.*|\w+\[.*\].*")

Json: TypeAlias = Any
"""A JSON value that is not validated yet."""
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object (name → value) that is not validated yet."""


def is_object(document: Json) -> TypeGuard[JsonObject]:
    """Return whether a JSON value is an object."""
    return isinstance(document, dict)


def name_check(kind: str, pattern: str, names: str) -> Callable[[str], str]:
    """Make a validator that returns a valid name unchanged, and raises ValueError for any other name.

    Args:
        kind: what the names stand for, such as ``engine`` in ``there is no engine 'x'``.
        pattern: a regular expression that must match the whole name.
        names: the valid names, for the message.
    """

    def checked(name: str) -> str:
        if not re.fullmatch(pattern, name):
            raise ValueError(f"there is no {kind} {name!r}; use {names}")
        return name

    return checked


class Problem(NamedTuple):
    """A validation error: path of the field, given value, message with the expected value, pydantic's error type."""

    loc: tuple[str | int, ...]
    input: Json
    msg: str
    type: str


def problem_in(error: ValidationError) -> Problem:
    """Return the first validation error; for a union, join the messages of all members with "or"."""
    problems = [(_fields(found["loc"]), found) for found in error.errors()]
    first, _ = problems[0]
    loc = max((loc for loc, _ in problems if loc[: len(first)] == first), key=len)
    here = [found for other, found in problems if other == loc]
    messages = dict.fromkeys(found["msg"].removeprefix("Value error, ").partition(", unable to")[0] for found in here)
    message, *others = messages
    message = " or ".join([message, *(other.removeprefix("Input should be ") for other in others)])
    return Problem(loc, here[0]["input"], message, here[0]["type"])


def _fields(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the path of a field without the names of union members, which pydantic inserts."""
    return tuple(part for part in loc if not isinstance(part, str) or not _FORM.fullmatch(part))


class Frozen(BaseModel):
    """A frozen pydantic model that rejects unknown keys, and is compared and hashed by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with some values changed; ``model_copy(update=…)`` would not validate."""
        return type(self).model_validate({**dict(self), **values})


def omitted(default: Any, **field: Any) -> Any:
    """Make an optional field that a document leaves out while the field has its default.

    Args:
        default: the default; a list or dictionary is copied for each model.
        field: other arguments of :func:`pydantic.Field`: description, bounds.
    """
    return Field(default=default, exclude_if=lambda value: value == default, **field)
