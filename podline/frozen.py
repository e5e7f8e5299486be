"""The base of every spec, result and setting, an immutable pydantic model; and names for JSON that none has checked."""

from __future__ import annotations

from typing import Any, Self, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict

Json: TypeAlias = Any
"""What a JSON document holds, before a model has checked it."""
JsonObject: TypeAlias = dict[str, Any]
"""The same of an object: name → value."""


def is_object(document: Json) -> TypeGuard[JsonObject]:
    """Whether a document is an object, and no list or plain value."""
    return isinstance(document, dict)


class Frozen(BaseModel):
    """Frozen, strict about unknown keys, equal and hashable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values, checked like the first; ``model_copy(update=…)`` checks nothing."""
        return type(self).model_validate({**dict(self), **values})
