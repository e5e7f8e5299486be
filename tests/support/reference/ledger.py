"""docs/reference/ledger.md: every field of an entry, and the columns of the table."""

from __future__ import annotations

import textwrap
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from podline.documents.ledger_entry import Entry, SplitChange
from podline.report.ledger import columns
from reference import attributes_of, table
from reference.fields import inner_model


def models_within(annotation: Any) -> type[BaseModel] | None:
    """The model in a field, also in a dictionary or a tuple of them."""
    found = inner_model(annotation)
    for inner in () if found or get_origin(annotation) in (Union, types.UnionType) else get_args(annotation):
        found = found or inner_model(inner)
    return found


def fields(model: type[BaseModel] = Entry, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted name and meaning of each field; those of a model within it follow it."""
    described = attributes_of(model)
    for name, field in model.model_fields.items():
        text = described.get(name, "")
        yield f"`{prefix}{name}`", text
        inner = models_within(field.annotation)
        if inner is not None and inner.__name__ not in ("Metric", "SplitChange"):
            many = "*." if get_origin(field.annotation) in (dict, tuple) else ""
            yield from fields(inner, f"{prefix}{name}.{many}")
        elif inner is SplitChange:
            yield from fields(inner, f"{prefix}{name}.*.")


def tables() -> dict[str, str]:
    other = [each.name for each in columns() if each.name != each.get and not each.name.endswith(("_low", "_high"))]
    return {
        "An entry's fields": table(("field", "meaning"), fields()),
        "The table's columns": "Fields with one value, by their dotted names. Others, where a metric has `_low` and "
        f"`_high` too:\n\n```\n{textwrap.fill(' '.join(other), 110)}\n```",
    }
