"""Reads a flow's parameters as its form does, and names the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from coolname.data import config as _words
from prefect.runtime import flow_run
from pydantic import BaseModel, ValidationError

from podline.errors import SettingsError
from podline.settings import nearest

F = TypeVar("F", bound=BaseModel)


def read_form(form: type[F], given: Any) -> F:
    """A form's values.

    Args:
        form: the model.
        given: the model, or what is saved of one, in this version's layout or in an earlier one.

    Raises:
        SettingsError: a value that cannot be, by the title of its field.
    """
    try:
        return form.model_validate(given)
    except ValidationError as error:
        raise SettingsError(problem_of(form, error)) from None


def problem_of(form: type[BaseModel], error: ValidationError) -> str:
    """The first of what is wrong with a form, by the title of its field."""
    problem = error.errors()[0]
    model, titles = form, list[str]()
    for name in problem["loc"]:
        field = model.model_fields.get(name) if isinstance(name, str) and model else None
        if field is None:
            known = {key: str(other.title) for key, other in model.model_fields.items()}
            if isinstance(name, str) and problem["type"] == "extra_forbidden":
                return f"there is no field {name!r}; {nearest(name, known)}"
            break
        titles.append(str(field.title))
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return f"{', '.join(titles)} = {problem['input']!r}: {problem['msg']}"


def run_name(form: type[F], describe: Callable[[F], str]) -> Callable[[], str]:
    """A ``flow_run_name``: the name that a person gave, else one that says what is run and when that was due.

    Args:
        form: the flow's own.
        describe: what is run.
    """

    def name() -> str:
        given = str(flow_run.name)
        if not drawn(given):
            return given
        due = flow_run.scheduled_start_time or datetime.now(UTC)
        try:
            parameters = read_form(form, flow_run.parameters.get("parameters", {}))
            return f"{describe(parameters)} {due:%Y-%m-%d %H:%M:%S}"
        except SettingsError:
            return given  # the run itself says what is wrong

    return name


def drawn(name: str) -> bool:
    """Whether Prefect drew a name because none was given: an adjective and an animal, out of its lists."""
    parts = name.split("-")
    return len(parts) == 2 and parts[0] in _list("adj_any") and parts[1] in _list("subj")


@cache
def _list(name: str) -> frozenset[str]:
    entry = _words[name]
    below = (word for other in entry.get("lists", ()) for word in _list(other))
    return frozenset([*entry.get("words", ()), *below])
