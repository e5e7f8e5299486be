"""The base of every spec, result and setting, an immutable pydantic model; and names for JSON that none has checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, ValidationError

# Of a union, as pydantic calls them: constrained-int, literal['all','best'], dict[str,float].
_FORM = re.compile(r"int|str|float|bool|(constrained|function|nullable)-.*|\w+\[.*\].*")

Json: TypeAlias = Any
"""What a JSON document holds, before a model has checked it."""
JsonObject: TypeAlias = dict[str, Any]
"""The same of an object: name → value."""


def is_object(document: Json) -> TypeGuard[JsonObject]:
    """Whether a document is an object, and no list or plain value."""
    return isinstance(document, dict)


def name_check(kind: str, pattern: str, names: str) -> Callable[[str], str]:
    """Return a function that returns a name of a kind, and raises ValueError for any other.

    Args:
        kind: what the names are of, as in ``there is no engine 'x'``.
        pattern: a regular expression that a whole name fits.
        names: those that there are, in words.
    """

    def checked(name: str) -> str:
        if not re.fullmatch(pattern, name):
            raise ValueError(f"there is no {kind} {name!r}; use {names}")
        return name

    return checked


class Problem(NamedTuple):
    """A validation error: the path of the field, the value given, the value expected, pydantic's type of error."""

    loc: tuple[str | int, ...]
    input: Json
    msg: str
    type: str


def problem_in(error: ValidationError) -> Problem:
    """Return the first of what is wrong. Of a value that may have several forms, all of them are named at once."""
    problems = [(_fields(found["loc"]), found) for found in error.errors()]
    first, _ = problems[0]
    loc = max((loc for loc, _ in problems if loc[: len(first)] == first), key=len)
    here = [found for other, found in problems if other == loc]
    told = dict.fromkeys(found["msg"].removeprefix("Value error, ").partition(", unable to")[0] for found in here)
    message, *others = told
    message = " or ".join([message, *(other.removeprefix("Input should be ") for other in others)])
    return Problem(loc, here[0]["input"], message, here[0]["type"])


def _fields(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a path without the forms of a union, which pydantic names among the fields."""
    return tuple(part for part in loc if not isinstance(part, str) or not _FORM.fullmatch(part))


class Frozen(BaseModel):
    """Frozen, strict about unknown keys, equal and hashable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, checked like the first; ``model_copy(update=…)`` checks nothing."""
        return type(self).model_validate({**dict(self), **values})
