"""A three-way merge of deployments: what the file says, what the server has, and what the file said last time.

A deployment is compared by its values, each under a dotted path: ``description``, ``parameters.parameters.recipe``,
``schedules.15 1 * * * Europe/Berlin``. Everything here is arithmetic on such tables; nothing asks a server.

1. The server's value is the file's: nothing to do.
2. The server's value is what the file said last time: nobody touched it there, and the file's new value goes to it.
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

_FLAT: Final = ("parameters", "job_variables")
_SCHEDULES: Final = "schedules"
_WHOLE: Final = ("description", "tags", "concurrency_limit", "work_pool", "work_queue")
# Parameters may have dots in their names; paths are cut at these.
_CUT: Final = "."


class _Absent:
    """A value that is not there, which is told from null."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


@dataclass(frozen=True)
class Difference:
    """A value of which the server has another one than the file.

    Attributes:
        path: where in the deployment.
        on_server: the server's value, or :data:`ABSENT`.
        in_file: the file's value, or :data:`ABSENT`.
        conflict: whether the file was changed as well since it was deployed last, or nothing is known of that.
    """

    path: str
    on_server: Any
    in_file: Any
    conflict: bool


def merged(last: Values | None, server: Values, file: Values, *, overwrite: bool) -> tuple[Values, list[Difference]]:
    """What is to be deployed, and what of it is the server's own.

    Args:
        last: what the file said when it was deployed last; None where that is not known.
        server: what the server has.
        file: what the file says.
        overwrite: in a difference the file's value counts.

    Returns:
        The merged values, and every difference between server and file that somebody made on the server.
    """
    result: Values = {}
    differences: list[Difference] = []
    for path in dict.fromkeys((*file, *server)):
        before = ABSENT if last is None else last.get(path, ABSENT)
        there, wanted = server.get(path, ABSENT), file.get(path, ABSENT)
        untouched = last is not None and there == before
        if there != wanted and not untouched:
            differences.append(Difference(path, there, wanted, conflict=last is None or wanted != before))
        chosen = wanted if there == wanted or untouched or overwrite else there
        if chosen is not ABSENT:
            result[path] = chosen
    return result, differences


def values_of(deployment: Mapping[str, Any]) -> Values:
    """A deployment as it stands in ``prefect.yaml`` as values by path.

    Args:
        deployment: with ``parameters``, ``job_variables``, ``schedules`` and so on; what is None counts as absent.
    """
    values: Values = {name: deployment[name] for name in _WHOLE if deployment.get(name) not in (None, [], "")}
    for name in _FLAT:
        values |= _flat(name, deployment.get(name) or {})
    for schedule in deployment.get(_SCHEDULES) or []:
        values[f"{_SCHEDULES}{_CUT}{_timing(schedule)}"] = _settings(schedule)
    return values


def deployment_of(values: Values) -> dict[str, Any]:
    """The inverse of :func:`values_of`: the parts of a deployment as ``prefect.yaml`` has them."""
    deployment: dict[str, Any] = {name: values[name] for name in _WHOLE if name in values}
    for name in _FLAT:
        deployment[name] = _nested(name, values)
    deployment[_SCHEDULES] = [
        {key: value for key, value in values[path].items() if value is not None}
        for path in values
        if path.startswith(_SCHEDULES + _CUT)
    ]
    return deployment


def defaults_of(schema: Mapping[str, Any]) -> Values:
    """What a form's fields are left at: the UI saves these with every edit, though nobody has set them.

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


def _flat(prefix: str, value: Any) -> Values:
    if isinstance(value, Mapping) and value:
        parts = (_flat(f"{prefix}{_CUT}{key}", inner) for key, inner in value.items())
        return {path: leaf for part in parts for path, leaf in part.items()}
    return {prefix: value} if _CUT in prefix else {}


def _nested(name: str, values: Values) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        first, *branches = path.split(_CUT)
        if first != name:
            continue
        *above, leaf = branches
        place = nested
        for branch in above:
            inner = place.get(branch)
            place[branch] = place = inner if isinstance(inner, dict) else {}
        place[leaf] = value
    return nested


def _timing(schedule: Mapping[str, Any]) -> str:
    """What tells one schedule of a deployment from another: when it is due."""
    when = schedule.get("cron") or schedule.get("rrule")
    if when is None:
        when = f"every {schedule.get('interval')} s"
    zone = schedule.get("timezone")
    return f"{when} {zone}" if zone else str(when)


def _settings(schedule: Mapping[str, Any]) -> dict[str, Any]:
    return {"active": True, **{key: value for key, value in schedule.items() if value not in (None, {}, "")}}


def in_words(value: Any) -> str:
    """A value for a person: as JSON, or that there is none."""
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)
