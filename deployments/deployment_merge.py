"""A three-way merge of deployments: the file, the server, and the file at the last deployment.

A deployment is compared by its values, each under a dotted path: ``description``, ``parameters.parameters.recipe``,
``schedules.15 1 * * * Europe/Berlin``. This module only computes with such tables; it does not access a server.

1. The server's value is the file's: nothing to do.
2. The server's value is what the file said last time: no person changed it, and the file's new value goes there.
3. The server's value is another one, and the file says what it said last time: a person set it there, and it stays.
4. Both were changed, or nothing is known of last time: the server's value stays, unless the file's is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Values = dict[str, Any]
"""Dotted path → value."""

_SCHEDULES: Final = "schedules"
_MERGED: Final = ("description", "tags", "concurrency_limit", "work_pool", "parameters", _SCHEDULES)
# Cuts paths here, since parameter names may contain dots.
_CUT: Final = "."


class _Absent:
    """A missing value, as opposed to null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


@dataclass(frozen=True)
class Difference:
    """A value that differs between the server and the file.

    Attributes:
        path: the value's path in the deployment.
        on_server: the server's value, or :data:`ABSENT`.
        in_file: the file's value, or :data:`ABSENT`.
        conflict: whether the file also changed since the last deployment, or its earlier value is unknown.
    """

    path: str
    on_server: Any
    in_file: Any
    conflict: bool


def merged(last: Values, server: Values, file: Values, *, overwrite: bool) -> tuple[Values, list[Difference]]:
    """Return the merged deployment, and the values that stay as on the server.

    Args:
        last: the file's values at the last deployment; empty if unknown.
        server: the server's values.
        file: the file's values.
        overwrite: whether the file's value replaces a value that differs.

    Returns:
        The merged values, and all differences between server and file that a user made on the server.
    """
    result: Values = {}
    differences: list[Difference] = []
    for path in dict.fromkeys((*file, *server)):
        before = last.get(path, ABSENT)
        there, wanted = server.get(path, ABSENT), file.get(path, ABSENT)
        untouched = there == before
        if there != wanted and not untouched:
            differences.append(Difference(path, there, wanted, conflict=wanted != before))
        chosen = wanted if there == wanted or untouched or overwrite else there
        if chosen is not ABSENT:
            result[path] = chosen
    return result, differences


def values_of(deployment: Mapping[str, Any]) -> Values:
    """Convert a deployment in the form of ``prefect.yaml`` to values by path.

    None and empty values count as absent, except in parameters.

    Args:
        deployment: the deployment, with ``parameters``, ``work_pool``, ``schedules`` and so on.
    """
    limit = deployment.get("concurrency_limit")
    plain = {
        "description": str(deployment.get("description") or "").strip(),
        "tags": sorted(deployment.get("tags") or ()),
        "concurrency_limit": {"limit": limit} if isinstance(limit, int) else limit,
        "work_pool": deployment.get("work_pool"),
        "parameters": deployment.get("parameters"),
    }
    values = {path: value for name, part in plain.items() for path, value in _flat(name, part).items()}
    return values | {path_of(schedule): _settings(schedule) for schedule in deployment.get(_SCHEDULES) or ()}


def with_values(deployment: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Return a deployment in the form of ``prefect.yaml``, with its values replaced."""
    result = {name: value for name, value in deployment.items() if name not in _MERGED}
    for path, value in values.items():
        if not path.startswith(_SCHEDULES + _CUT):
            *above, leaf = path.split(_CUT)
            place = result
            for branch in above:
                inner = place.get(branch)
                place[branch] = place = inner if isinstance(inner, dict) else {}
            place[leaf] = value
    schedules = [value for path, value in values.items() if path.startswith(_SCHEDULES + _CUT)]
    return {**result, _SCHEDULES: schedules}


def defaults_of(schema: Mapping[str, Any]) -> Values:
    """Return the defaults of a form's fields by path.

    Args:
        schema: the JSON schema of a deployment's parameters.
    """
    definitions = schema.get("definitions") or {}

    def below(path: str, part: Mapping[str, Any]) -> Values:
        part = definitions.get(str(part.get("$ref", "")).rpartition("/")[2], part)
        if "properties" not in part:
            return {path: part["default"]} if "default" in part else {}
        inner = (below(f"{path}{_CUT}{name}", field) for name, field in part["properties"].items())
        return {path: value for values in inner for path, value in values.items()}

    return below("parameters", schema)


def path_of(schedule: Mapping[str, Any]) -> str:
    """Return the path of a schedule, which contains its cron, rrule or interval."""
    when = schedule.get("cron") or schedule.get("rrule")
    if when is None:
        when = f"every {schedule.get('interval')} s"
    zone = schedule.get("timezone")
    return f"{_SCHEDULES}{_CUT}{when} {zone}" if zone else f"{_SCHEDULES}{_CUT}{when}"


def _flat(prefix: str, value: Any) -> Values:
    if isinstance(value, Mapping) and value:
        parts = (_flat(f"{prefix}{_CUT}{key}", inner) for key, inner in value.items())
        return {path: leaf for part in parts for path, leaf in part.items()}
    is_absent = value in (None, [], {}, "") and not prefix.startswith("parameters.")
    return {} if is_absent else {prefix: value}


def _settings(schedule: Mapping[str, Any]) -> dict[str, Any]:
    return {"active": True, **{key: value for key, value in schedule.items() if value not in (None, {}, "")}}


def in_words(value: Any) -> str:
    """Format a value for a message: as JSON, or as a note that it is absent."""
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)
