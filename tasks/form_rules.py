"""Rules of a form beyond its fields, as JSON schema: values that exclude each other, and keys of earlier forms.

Prefect's server checks parameters against the form's JSON schema before it makes a run, and shows the sentence of the
``const`` that was not met: so what two fields must not say together is written as ``if`` and ``then``. JSON Schema
compares no two numbers, and knows no recipe: the rest is the model's own to check, when the run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from podline.errors import SettingsError

SchemaRule = dict[str, Any]
Path = tuple[str, ...]

POSITIVE: SchemaRule = {"type": "number", "exclusiveMinimum": 0}


def at(path: Path, schema: SchemaRule) -> SchemaRule:
    """There is a value at a path, and it is like this."""
    name, *rest = path
    return {"properties": {name: at(tuple(rest), schema) if rest else schema}, "required": [name]}


def refused(when: SchemaRule, path: Path, sentence: str) -> SchemaRule:
    """When parameters are like this, the value at a path is refused by a sentence that says what it should be."""
    return {"if": when, "then": at(path, {"const": sentence})}


def one_of(titles: Mapping[str, str]) -> list[SchemaRule]:
    """At most one of several fields is more than 0.

    Args:
        titles: of the fields, by name.
    """
    names = list(titles)
    return [
        refused(
            {"allOf": [at((first,), POSITIVE), at((second,), POSITIVE)]},
            (second,),
            f"0, since {titles[first]} is given: one of {', '.join(titles.values())}",
        )
        for index, first in enumerate(names)
        for second in names[index + 1 :]
    ]


def extend(schema: dict[str, Any], form: type[BaseModel], rules: list[SchemaRule]) -> None:
    """Adds rules to a form's schema, and the keys of its groups at its top, where they once were.

    Args:
        schema: is changed.
        form: the form's model.
        rules: see :func:`refused`.
    """
    flat = {f"^{name}$": field for group in groups(form).values() for name, field in _fields(group).items()}
    if flat:
        # Not shown in the form, which knows `properties` alone.
        schema["patternProperties"] = flat
    if rules:
        schema |= {"if": True, "then": {"allOf": rules}}


def groups(form: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The fields of a form that are forms within it."""
    found = {name: field.annotation for name, field in form.model_fields.items()}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def not_shown(form: type[BaseModel], given: Any) -> dict[str, Any]:
    """The values of saved parameters that stand where they were before there were groups: the form shows them not."""
    names = {name for model in groups(form).values() for name in model.model_fields}
    return {name: value for name, value in given.items() if name in names} if isinstance(given, Mapping) else {}


def grouped(form: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with every value in its group, also where they were saved before there were groups.

    Args:
        form: the form's model.
        given: parameters; those of a group may stand at the top.

    Raises:
        SettingsError: a value stands in both places, and says two things.
    """
    result = dict(given)
    for group, model in groups(form).items():
        old = {name: result.pop(name) for name in model.model_fields if name in result}
        if not old:
            continue
        there = result.get(group, {})
        inside = there.model_dump(exclude_unset=True) if isinstance(there, BaseModel) else dict(there)
        for name, value in old.items():
            # The form fills in the defaults of a group.
            if inside.get(name, value) not in (value, model.model_fields[name].default):
                raise SettingsError(
                    f"{name}={value!r} vs {group}.{name}={inside[name]!r}: give it once, as {group}.{name}"
                )
        result[group] = inside | old
    return result


def _fields(group: type[BaseModel]) -> dict[str, Any]:
    return group.model_json_schema()["properties"]
