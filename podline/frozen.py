"""The base of every spec, result and setting, an immutable pydantic model; and names for JSON that none has checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict

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


class Frozen(BaseModel):
    """Frozen, strict about unknown keys, equal and hashable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, checked like the first; ``model_copy(update=…)`` checks nothing."""
        return type(self).model_validate({**dict(self), **values})
