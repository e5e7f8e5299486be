"""Parses a flow's parameters like its form does, and names the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from prefect.context import FlowRunContext
from prefect.runtime import flow_run
from pydantic import BaseModel, ValidationError

from podline.errors import SettingsError
from podline.frozen import problem_in
from podline.settings import nearest
from podline.tasks.runs.nights import is_night

F = TypeVar("F", bound=BaseModel)


def read_form(form: type[F], given: Any) -> F:
    """Parse a form's values.

    Args:
        form: the form's model.
        given: the model, or its saved values.

    Raises:
        SettingsError: a value is invalid; the message has the title of its field.
    """
    try:
        return form.model_validate(given)
    except ValidationError as error:
        raise SettingsError(problem_of(form, error)) from None


def problem_of(form: type[BaseModel], error: ValidationError) -> str:
    """Return the first problem of a form, with the title of its field."""
    problem = problem_in(error)
    model, titles = form, list[str]()
    for name in problem.loc:
        field = model.model_fields.get(name) if isinstance(name, str) and model else None
        if field is None:
            known = {key: str(other.title) for key, other in model.model_fields.items()}
            if isinstance(name, str) and problem.type == "extra_forbidden":
                return f"there is no field {name!r}; {nearest(name, known)}"
            break
        titles.append(str(field.title))
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return f"{', '.join(titles)} = {problem.input!r}: {problem.msg}"


def run_name(form: type[F], describe: Callable[[F], str]) -> Callable[[], str]:
    """Return a ``flow_run_name``: the subject and the due time.

    Runs of a deployment that no schedule or automation made keep their names after the subject, since a person may have
    given them, and Prefect does not tell.

    Args:
        form: the flow's form.
        describe: returns the subject of the run.
    """

    def name() -> str:
        context = FlowRunContext.get()
        run = context.flow_run if context else None
        due = flow_run.scheduled_start_time or datetime.now(UTC)
        try:
            subject = describe(read_form(form, flow_run.parameters.get("parameters", {})))
        except SettingsError:
            return str(flow_run.name)  # the run itself will report the error
        if run and run.deployment_id and not is_night(run):
            # A retry has the subject already.
            return run.name if subject in run.name else f"{subject}: {run.name}"
        return f"{subject} {due:%Y-%m-%d %H:%M:%S}"

    return name
