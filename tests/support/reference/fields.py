"""Fields of settings as rows of a table: name, default with bounds, and what the class says of them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from podline.recipes.durations import Duration
from reference import attributes_of

SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}


def rows_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The fields of a model; those of a model within it follow it, with dotted names."""
    described = attributes_of(model)
    for name, field in model.model_fields.items():
        inner = inner_model(field.annotation)
        text = described.get(name) or field.description or (inner and (inner.__doc__ or "").partition("\n")[0])
        assert text, f"{model.__name__}.{name} is described nowhere: write it into the class's Attributes"
        yield f"`{prefix}{name}`", default_of(field, inner), text
        if inner is not None and not issubclass(inner, Duration):
            yield from rows_of(inner, f"{prefix}{name}.")


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, itself or as one choice beside None."""
    choices = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    models = [each for each in choices if isinstance(each, type) and issubclass(each, BaseModel)]
    return models[0] if models else None


def default_of(field: FieldInfo, inner: type[BaseModel] | None) -> str:
    """The default in a few characters, with the field's bounds or choices."""
    default = None if field.default_factory_takes_validated_data else field.get_default(call_default_factory=True)
    if field.is_required():
        shown = "to be given"
    elif default is None or default in ("", (), {}):
        shown = "none"
    elif inner is not None:
        shown = str(default) if isinstance(default, Duration) else ""
    else:
        shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
    limits = {SIGNS[type(each)]: f"{vars_of(each)[0]:,}" for each in field.metadata if type(each) in SIGNS}
    bounds = [f"{sign} {limit}" for sign, limit in limits.items()]
    if limits.keys() == {"≥", "≤"}:
        bounds = [f"{limits['≥']}…{limits['≤']}"]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    more = ", ".join(bounds) or ", ".join(str(each) for each in choices if each != default)
    return f"{shown} ({more})" if more else shown


def vars_of(bound: Any) -> list[Any]:
    return [getattr(bound, name) for name in ("ge", "gt", "le", "lt") if hasattr(bound, name)]
