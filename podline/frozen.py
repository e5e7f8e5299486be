"""The base of every spec, result and setting: an immutable pydantic model that admits no unknown key."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Frozen, strict about unknown keys, equal and hashable by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
