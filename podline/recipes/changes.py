"""Changes values of a recipe's document by their dotted paths."""

from __future__ import annotations

from collections.abc import Mapping

from podline.frozen import Json, JsonObject, is_object
from podline.recipes.durations import Part


def with_changes(document: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
    """Return a recipe's document with new values at some dotted paths.

    A duration holds one of steps, epochs, examples and share; setting one replaces another.
    """
    changed = dict(document)
    for path, value in changes.items():
        name, _, rest = path.partition(".")
        inner = found if is_object(found := changed.get(name)) else {}
        if rest in Part.model_fields and inner.keys() <= Part.model_fields.keys():
            inner = {}
        changed[name] = with_changes(inner, {rest: value}) if rest else value
    return changed
